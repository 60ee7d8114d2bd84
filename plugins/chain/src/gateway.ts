import type { PluginContext } from '@sibyl/plugin-kit';
import { z } from 'zod';

const TIMEOUT_MS = 20_000;
/** What a model can read without losing the thread. */
const MAX_ANSWER_BYTES = 32 * 1024;
const MAX_FAULT_LENGTH = 1000;

/** What a gateway says when it has no answer. */
const Fault = z.object({ message: z.string() });

export interface Question {
  /** Below the gateway's own address, starting with `/`. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  /** Unset: the latest block. */
  readonly height?: number | undefined;
  readonly signal: AbortSignal;
  /** Unset: as much as a model should read. */
  readonly maxBytes?: number;
}

export interface Told {
  /** The block the answer speaks of, if the gateway says. */
  readonly height: number | undefined;
  readonly answer: unknown;
}

/** The gateway the operator has configured; the agent chooses paths below it, never another address. */
export class Gateway {
  readonly #config: ChainConfig;
  readonly #fetch: PluginContext['fetch'];
  readonly #logger: PluginContext['logger'];

  constructor(context: Pick<PluginContext<ChainConfig>, 'config' | 'fetch' | 'logger'>) {
    this.#config = context.config;
    this.#fetch = context.fetch;
    this.#logger = context.logger;
  }

  /** Reads, and cannot but read: every question is a GET. */
  async ask(question: Question): Promise<Told> {
    const { maxBytes = MAX_ANSWER_BYTES } = question;
    const response = await this.#get(question, maxBytes);
    const text = await response.text().catch((error) => this.#rethrow(error, maxBytes));
    if (!response.ok) throw new Error(`The gateway answered ${response.status}: ${faultOf(text)}`);
    const height = Number(response.headers.get('x-block-height')) || undefined;
    return { height, answer: parseAnswer(text) };
  }

  #get({ path, query = {}, height, signal }: Question, maxBytes: number): Promise<Response> {
    const { GATEWAY_URL: url, GATEWAY_KEY: key } = this.#config;
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
    const asked = this.#fetch(`${url}${path}${search.size > 0 ? `?${search}` : ''}`, init);
    return asked.catch((error) => this.#rethrow(error, maxBytes));
  }

  /** Where the gateway is and why it was not reached is for the log: the model's words go to strangers. */
  #rethrow(error: unknown, maxBytes: number): never {
    const { name, code } = (error ?? {}) as { readonly name?: unknown; readonly code?: unknown };
    if (name !== 'SafeFetchError') throw error;
    if (code === 'too_large') {
      const advice = 'ask for less, for instance with pagination.limit';
      throw new Error(`The answer has more than ${maxBytes} bytes; ${advice}`);
    }
    this.#logger.warn({ err: error }, 'the gateway was not reached');
    if (code === 'timeout') throw new Error('The gateway did not answer in time; try again later');
    throw new Error('The gateway cannot be reached; try again later');
  }
}

function parseAnswer(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error('The gateway gave an answer that is not JSON');
  }
}

function faultOf(text: string): string {
  try {
    return Fault.parse(JSON.parse(text)).message.slice(0, MAX_FAULT_LENGTH);
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
    .describe('Protocol query gateway that the agent asks the chain through'),
  GATEWAY_KEY: z.string().min(1).optional().describe('API key of that gateway, if it wants one'),
});
export type ChainConfig = z.output<typeof ChainConfig>;
