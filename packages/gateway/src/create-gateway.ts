import { readFile } from 'node:fs/promises';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { rootCertificates } from 'node:tls';
import type { Config } from './config/config.js';
import type { UpstreamAddress } from './config/upstream-url.js';
import { Admission } from './gating/admission.js';
import { askChain } from './gating/ask-chain.js';
import { createGate } from './gating/create-gate.js';
import { closerOf } from './http/close-server.js';
import type { GatewayParts } from './http/gateway-parts.js';
import { Handler } from './http/handler.js';
import { createHttpServer } from './http/http-server.js';
import { Watches } from './http/watches.js';
import { BlockWatch } from './nodes/block-watch.js';
import { ChainNode } from './nodes/chain-node.js';
import { createUpstream } from './nodes/create-upstream.js';
import { NodePool } from './nodes/node-pool.js';
import { createLogger, type Logger } from './observe/logger.js';
import { Metrics } from './observe/metrics.js';
import { Answers } from './query/answers.js';
import { Questions } from './query/questions.js';
import { SchemaKeeper } from './schema-source/schema-keeper.js';
import { SchemaRefresh } from './schema-source/schema-refresh.js';

export interface GatewayOptions {
  readonly config: Config;
  readonly logger?: Logger;
}

/** A gateway, listening or about to. */
export interface Gateway {
  /** The DID that UCANs must be addressed to, where they are asked for; known once it listens. */
  readonly did: string | undefined;
  /** Starts to listen, and resolves to the URL once nodes were asked for the first time. */
  listen(): Promise<string>;
  /** Lets requests under way end, and stops. */
  close(): Promise<void>;
}

/** Makes a gateway; nothing is asked or opened before `listen`. */
export function createGateway({ config, logger = createLogger(config) }: GatewayOptions): Gateway {
  let running: Running | undefined;
  return {
    get did() {
      return running?.did;
    },
    listen: async () => {
      running ??= await start(config, logger);
      return running.url;
    },
    close: async () => {
      const stopping = running;
      running = undefined;
      await stopping?.stop();
    },
  };
}

interface Running {
  readonly url: string;
  readonly did: string | undefined;
  stop(): Promise<void>;
}

async function start(config: Config, logger: Logger): Promise<Running> {
  const demo = config.nodes.addresses.length === 0 ? await startDemo(logger) : undefined;
  const addresses = demo ? [demo.address] : config.nodes.addresses;
  const { parts, refresh, did } = await createParts(config, logger, addresses);
  const server = createHttpServer(new Handler(parts).handle, config.requestTimeoutMs);
  const closeServer = closerOf(server);
  try {
    await listen(server, config);
    await parts.blocks.start();
    await refresh.start();
  } catch (fault) {
    // An address in use must leave nothing running behind.
    await stop();
    throw fault;
  }
  return { url: urlOf(server), did, stop };

  async function stop() {
    refresh.stop();
    parts.blocks.stop();
    parts.watches.close();
    await closeServer();
    for (const { upstream } of parts.pool.nodes) upstream.close();
    await demo?.close();
  }
}

async function startDemo(logger: Logger) {
  const { startDemoChain } = await import('./demo-chain/index.js');
  const { url, close } = await startDemoChain();
  logger.info({ url }, 'GATEWAY_UPSTREAMS is unset: serving the built-in demo chain');
  const address: UpstreamAddress = { url: new URL(url), from: undefined };
  return { address, close };
}

async function createParts(config: Config, logger: Logger, addresses: readonly UpstreamAddress[]) {
  const { caFile, maxReplyBytes, maxLag, pollMs } = config.nodes;
  const ca =
    caFile === undefined ? undefined : [...rootCertificates, await readFile(caFile, 'utf8')];
  const nodes = addresses.map(
    (address) => new ChainNode(createUpstream({ url: address.url, ca, maxReplyBytes }), address),
  );
  const metrics = new Metrics();
  const pool = new NodePool({ nodes, maxLag });
  const blocks = new BlockWatch(pool, pollMs);
  const keeper = new SchemaKeeper({ nodes, config, logger });
  const questions = new Questions({ keeper, config });
  const answers = new Answers({ pool, blocks, cacheBytes: config.cache.maxBytes, metrics });
  const watches = new Watches({ answers, blocks, pool, ...config.watch });
  const asking = { config, logger, askChain: askChain({ questions, answers, pool }) };
  const { gate, did } = await createGate(asking);
  const admission = new Admission(gate, config);
  const shared = { config, logger, metrics, pool, blocks, keeper };
  const parts: GatewayParts = { ...shared, questions, answers, admission, watches };
  return { parts, refresh: new SchemaRefresh({ pool, blocks, keeper, pollMs }), did };
}

function listen(server: Server, { port, host }: Config): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject).listen(port, host, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

function urlOf(server: Server): string {
  const { address, port, family } = server.address() as AddressInfo;
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}
