import { type PluginContext, SafeFetchError } from '@sibyl/plugin-kit';
import { z } from 'zod';

const TIMEOUT_MS = 20_000;
/** The most a model can make use of. */
const MAX_ANSWER_BYTES = 32 * 1024;
const MAX_ERROR_LENGTH = 1000;

/** The one that a gateway sends in every mode. */
const HEIGHT_HEADER = 'grpc-metadata-x-cosmos-block-height';

/** The gateway's error body. */
const ErrorBody = z.object({ message: z.string() });

export interface GatewayRequest {
  /** Below the gateway's own address, starting with `/`. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  /** Unset: the latest block. */
  readonly height?: number | undefined;
  readonly signal: AbortSignal;
  /** Unset: the most a model can make use of. */
  readonly maxBytes?: number;
}

export interface GatewayReply {
  /** The block of the answer, if the gateway names it. */
  readonly height: number | undefined;
  readonly answer: unknown;
}

/** The gateway that the operator configured; the agent chooses paths below its address. */
export class Gateway {
  private readonly config: ChainConfig;
  private readonly fetch: PluginContext['fetch'];
  private readonly logger: PluginContext['logger'];

  constructor(context: Pick<PluginContext<ChainConfig>, 'config' | 'fetch' | 'logger'>) {
    this.config = context.config;
    this.fetch = context.fetch;
    this.logger = context.logger;
  }

  /** Read-only: sends GET requests. */
  async get(request: GatewayRequest): Promise<GatewayReply> {
    const { maxBytes = MAX_ANSWER_BYTES } = request;
    const response = await this.fetchPath(request, maxBytes);
    const text = await response.text().catch((error) => this.rethrow(error, maxBytes));
    if (!response.ok)
      throw new Error(`The gateway answered ${response.status}: ${readError(text)}`);
    const height = Number(response.headers.get(HEIGHT_HEADER)) || undefined;
    return { height, answer: parseAnswer(text) };
  }

  private fetchPath(
    { path, query = {}, height, signal }: GatewayRequest,
    maxBytes: number,
  ): Promise<Response> {
    const { GATEWAY_URL: url, GATEWAY_KEY: key } = this.config;
    const search = new URLSearchParams(query);
    const init = {
      headers: {
        accept: 'application/json',
        ...(key && { 'x-api-key': key }),
        ...(height && { 'x-cosmos-block-height': String(height) }),
      },
      signal,
      maxBytes,
      timeoutMs: TIMEOUT_MS,
      // The key is for this address alone.
      redirect: 'error',
    } as const;
    const response = this.fetch(`${url}${path}${search.size > 0 ? `?${search}` : ''}`, init);
    return response.catch((error) => this.rethrow(error, maxBytes));
  }

  /** The gateway's address and the cause go to the log only: users can read what the model receives. */
  private rethrow(error: unknown, maxBytes: number): never {
    if (!(error instanceof SafeFetchError)) throw error;
    const { code } = error;
    if (code === 'too_large') {
      const advice = 'ask for less, for instance with pagination.limit';
      throw new Error(`The answer has more than ${maxBytes} bytes; ${advice}`);
    }
    this.logger.warn({ err: error }, 'cannot reach the gateway');
    if (code === 'timeout') throw new Error('The gateway timed out; try again later');
    throw new Error('The gateway cannot be reached; try again later');
  }
}

function parseAnswer(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error('The gateway did not answer with JSON');
  }
}

function readError(text: string): string {
  try {
    return ErrorBody.parse(JSON.parse(text)).message.slice(0, MAX_ERROR_LENGTH);
  } catch {
    return 'no reason given';
  }
}

/** The plugin's variables. */
export const ChainConfig = z.object({
  GATEWAY_URL: z
    .url({ protocol: /^https?$/, error: 'must be an http(s) URL' })
    .refine((url) => !/[?#]/.test(url), { error: 'must have no query and no fragment' })
    .transform((url) => url.replace(/\/+$/, ''))
    .describe('Protocol query gateway through which the agent reads the chain'),
  GATEWAY_KEY: z.string().min(1).optional().describe('API key of that gateway, if it requires one'),
});
export type ChainConfig = z.output<typeof ChainConfig>;
