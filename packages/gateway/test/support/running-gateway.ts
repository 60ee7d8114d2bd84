import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createGateway, type Gateway, loadConfig } from '../../src/index.js';

export interface RunningGateway {
  readonly url: string;
  readonly gateway: Gateway;
  /** All log lines. */
  readonly log: readonly Record<string, unknown>[];
  /** Reads /health of the operator port. */
  health(): Promise<GatewayResponse>;
  get(path: string, headers?: Record<string, string>): Promise<GatewayResponse>;
  close(): Promise<void>;
}

export interface GatewayResponse {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
  readonly json: any;
}

/** Starts a gateway on a free port before these nodes; it looks for blocks often. */
export async function startGateway(
  nodes: readonly { readonly url: string }[],
  env: Readonly<Record<string, string>> = {},
): Promise<RunningGateway> {
  const dataDir = await mkdtemp(join(tmpdir(), 'sibyl-gateway-'));
  const log: Record<string, unknown>[] = [];
  const write = (fields: object, msg?: string) => void log.push({ ...fields, msg });
  const config = loadConfig({
    GATEWAY_PORT: '0',
    GATEWAY_BLOCK_POLL_MS: '50',
    GATEWAY_UPSTREAMS: nodes.map(({ url }) => url).join(','),
    DATA_DIR: dataDir,
    ...env,
  });
  const logger = { debug: write, info: write, warn: write, error: write };
  const gateway = createGateway({ config, logger });
  const url = await gateway.listen();
  return {
    url,
    gateway,
    log,
    health: () => ask(`${gateway.metricsUrl}/health`),
    get: (path, headers = {}) => ask(`${url}${path}`, { headers }),
    close: async () => {
      await gateway.close();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

/** Sends an HTTP request and reads the whole response. */
export async function ask(url: string, init: RequestInit = {}): Promise<GatewayResponse> {
  const response = await fetch(url, init);
  const text = await response.text();
  return { status: response.status, headers: response.headers, text, json: parsed(text) };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
