import { setTimeout as delay } from 'node:timers/promises';
import type { SafeFetch, TurnUser } from '@sibyl/plugin-kit';
import { hasShortHost } from '@sibyl/protocol';
import { z } from 'zod';

const JSON_LIMITS = { maxBytes: 1024 ** 2, timeoutMs: 10_000 };
const WELL_KNOWN_LIMITS = { maxBytes: 64 * 1024, timeoutMs: 5000 };

/** A homeserver and a token, which is never sent to another address. */
export interface Homeserver {
  readonly baseUrl: string;
  readonly token: string | undefined;
  /** Whose token it is: the oracle may see rooms that the user may not. */
  readonly as: 'user' | 'oracle';
}

const WellKnown = z.object({ 'm.homeserver': z.object({ base_url: z.string() }) });

/** An error of a homeserver; status 0 if it did not answer. */
export class MatrixError extends Error {
  override readonly name = 'MatrixError';
  constructor(
    readonly status: number,
    message: string,
    options?: ErrorOptions & { readonly retryAfterMs?: number },
  ) {
    super(message, options);
    this.retryAfterMs = options?.retryAfterMs;
  }
  /** How long the homeserver asks to wait. */
  readonly retryAfterMs: number | undefined;
}

/** The oracle's own homeserver, if it has an account there. */
export function getOracleHomeserver(config: MatrixConfig): Homeserver | undefined {
  const { MATRIX_BASE_URL: baseUrl, MATRIX_ACCESS_TOKEN: token } = config;
  return baseUrl && token ? { baseUrl, token, as: 'oracle' } : undefined;
}

/** Where the user's files are: the homeserver they name with their own token, else the oracle's. */
export async function findUserHomeserver(
  user: TurnUser,
  config: MatrixConfig,
  fetch: SafeFetch,
  signal?: AbortSignal,
): Promise<Homeserver> {
  const { homeServer, accessToken: token } = user.matrix ?? {};
  if (homeServer)
    return { baseUrl: await resolveBaseUrl(homeServer, fetch, signal), token, as: 'user' };
  const { MATRIX_BASE_URL: baseUrl, MATRIX_ACCESS_TOKEN: ours } = config;
  if (!baseUrl) throw new MatrixError(0, 'no homeserver is configured');
  return token ? { baseUrl, token, as: 'user' } : { baseUrl, token: ours, as: 'oracle' };
}

/** Resolves a name such as `matrix.org` with its well-known file. */
export async function resolveBaseUrl(
  homeServer: string,
  fetch: SafeFetch,
  signal?: AbortSignal,
): Promise<string> {
  if (/^https?:\/\//i.test(homeServer)) return parseOrigin(homeServer);
  const fallback = parseOrigin(`https://${homeServer}`);
  try {
    const response = await fetch(`${fallback}/.well-known/matrix/client`, {
      ...WELL_KNOWN_LIMITS,
      ...(signal && { signal }),
    });
    const wellKnown = WellKnown.parse(await response.json());
    return parseOrigin(wellKnown['m.homeserver'].base_url);
  } catch {
    signal?.throwIfAborted();
    return fallback;
  }
}

function parseOrigin(text: string): string {
  const url = hasShortHost(text) ? URL.parse(text) : undefined;
  if (!url) throw new MatrixError(0, 'the homeserver is not a valid address');
  return `${url.protocol}//${url.host}`;
}

export const authorization = ({ token }: Homeserver): Record<string, string> =>
  token === undefined ? {} : { authorization: `Bearer ${token}` };

interface MatrixRequest<Schema extends z.ZodType> {
  readonly method?: 'GET' | 'PUT' | 'POST';
  readonly path: string;
  readonly body?: object;
  readonly signal?: AbortSignal;
  readonly limits?: typeof JSON_LIMITS;
  /** Of the reply. */
  readonly reply: Schema;
}

const ErrorReply = z
  .object({ errcode: z.unknown().optional(), error: z.unknown().optional() })
  .catch({});

/** Sends a request to the client-server API and parses its JSON reply. */
export async function requestMatrix<Schema extends z.ZodType>(
  homeserver: Homeserver,
  { method = 'GET', path, body, signal, limits = JSON_LIMITS, reply }: MatrixRequest<Schema>,
  fetch: SafeFetch,
): Promise<z.output<Schema>> {
  const sent = fetchWithinLimits(fetch, `${homeserver.baseUrl}/_matrix/client/v3${path}`, {
    method,
    headers: { ...authorization(homeserver), 'content-type': 'application/json' },
    ...(body && { body: JSON.stringify(body) }),
    ...(signal && { signal }),
    ...limits,
  });
  const response = await sent.catch((error) => {
    throw hideAddress(error);
  });
  const json = await response.json().catch((error) => {
    // Proxies send HTML errors; the status is enough.
    if (response.ok || error?.name !== 'SyntaxError') throw hideAddress(error);
    return {};
  });
  if (response.ok) {
    const { data, error } = reply.safeParse(json);
    if (error) throw new MatrixError(0, 'the homeserver sent an invalid reply', { cause: error });
    return data;
  }
  const { errcode = '', error = 'no reason given' } = ErrorReply.parse(json);
  const reason = `${errcode} (${error})`.slice(0, REASON_LENGTH);
  throw new MatrixError(response.status, `the homeserver answered ${response.status} ${reason}`);
}

/** A request that a homeserver limits waits for it this long in all. */
const MAX_WAIT_MS = 5_000;
const MIN_WAIT_MS = 100;

/** Repeats a request that a homeserver limits, as soon as it permits; throws if that is not soon. */
export async function fetchWithinLimits(
  fetch: SafeFetch,
  url: string,
  init: NonNullable<Parameters<SafeFetch>[1]>,
): Promise<Response> {
  for (let leftMs = MAX_WAIT_MS; ; ) {
    const response = await fetch(url, init);
    if (response.status !== 429) return response;
    const waitMs = Math.max(MIN_WAIT_MS, await readRetryAfter(response));
    leftMs -= waitMs;
    if (leftMs < 0)
      throw new MatrixError(429, 'the homeserver limits requests', { retryAfterMs: waitMs });
    await delay(waitMs, undefined, init.signal ? { signal: init.signal } : {});
  }
}

const LimitReply = z.object({
  retry_after_ms: z
    .number()
    .min(0)
    .max(24 * 60 * 60_000),
});

/** Milliseconds; newer homeservers send the header, older ones the field. */
async function readRetryAfter(response: Response): Promise<number> {
  const { data } = LimitReply.safeParse(await response.json().catch(() => undefined));
  const seconds = Number(response.headers.get('retry-after') ?? Number.NaN);
  return data?.retry_after_ms ?? (Number.isFinite(seconds) ? seconds * 1000 : MIN_WAIT_MS);
}

/** Requests of one kind that a homeserver limits together: while it limits one, the others are not sent. */
export class RequestPace {
  private limitedUntil = Number.NEGATIVE_INFINITY;

  async run<T>(request: () => Promise<T>): Promise<T> {
    const retryAfterMs = this.limitedUntil - performance.now();
    if (retryAfterMs > 0)
      throw new MatrixError(429, 'the homeserver limits requests', { retryAfterMs });
    try {
      return await request();
    } catch (error) {
      if (error instanceof MatrixError && error.retryAfterMs)
        this.limitedUntil = performance.now() + error.retryAfterMs;
      throw error;
    }
  }
}

/** Error texts of homeservers have any length. */
const REASON_LENGTH = 300;

/** Addresses and causes go to the log only: models and users see this message. */
function hideAddress(error: unknown): unknown {
  if (!(error instanceof Error) || !HIDDEN.has(error.name)) return error;
  return new MatrixError(0, 'the homeserver cannot be reached', { cause: error });
}

const HIDDEN: ReadonlySet<string> = new Set(['SafeFetchError', 'SyntaxError']);

export const encodeSegment = (text: string): string => encodeURIComponent(text);

const Url = z
  .url({ protocol: /^https?$/ })
  .transform((url) => url.replace(/\/+$/, ''))
  .optional();

/** The plugin's environment variables. */
export const MatrixConfig = z.object({
  MATRIX_BASE_URL: Url.describe(
    "The oracle's homeserver; also where files are looked up for users who name none",
  ),
  MATRIX_ACCESS_TOKEN: z
    .string()
    .min(1)
    .optional()
    .describe(
      "The oracle's own access token, used towards MATRIX_BASE_URL only; with it, preferences are copied to the user's room with the oracle",
    ),
  MATRIX_CHAT: z
    .enum(['true', 'false'], { error: 'must be true or false' })
    .transform((value) => value === 'true')
    .prefault('false')
    .describe('Whether the oracle answers in the rooms that it is invited to'),
  MATRIX_CHAT_ALLOW: z
    .string()
    .optional()
    .transform((text) =>
      text
        ?.split(',')
        .map((part) => part.trim())
        .filter(Boolean),
    )
    .describe(
      'Who may talk to it in rooms: homeservers such as example.org and accounts such as @alice:example.org, separated by commas, or *; default: its own homeserver',
    ),
});
export type MatrixConfig = z.output<typeof MatrixConfig>;
