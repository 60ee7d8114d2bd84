import type { PluginContext, TurnUser } from '@sibyl/plugin-kit';
import { z } from 'zod';

type SafeFetch = PluginContext['fetch'];

const JSON_LIMITS = { maxBytes: 1024 ** 2, timeoutMs: 10_000 };
const WELL_KNOWN_LIMITS = { maxBytes: 64 * 1024, timeoutMs: 5000 };

/** A homeserver as somebody with a token sees it; the token never leaves for another address. */
export interface Homeserver {
  readonly baseUrl: string;
  readonly token: string | undefined;
  /** Whose token it is: the oracle may see rooms that the user may not. */
  readonly as: 'user' | 'oracle';
}

/** Matrix answered with a fault, or not at all. */
export class MatrixError extends Error {
  override readonly name = 'MatrixError';
  constructor(
    readonly status: number,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The oracle's own homeserver, if it has an account there. */
export function oracleHomeserver(config: MatrixConfig): Homeserver | undefined {
  const { MATRIX_BASE_URL: baseUrl, MATRIX_ACCESS_TOKEN: token } = config;
  return baseUrl && token ? { baseUrl, token, as: 'oracle' } : undefined;
}

/** Where the user's files are: the homeserver they name with their own token, else the oracle's. */
export async function userHomeserver(
  user: TurnUser,
  config: MatrixConfig,
  fetch: SafeFetch,
  signal?: AbortSignal,
): Promise<Homeserver> {
  const { homeServer, accessToken: token } = user.matrix ?? {};
  if (homeServer) return { baseUrl: await baseUrlOf(homeServer, fetch, signal), token, as: 'user' };
  const { MATRIX_BASE_URL: baseUrl, MATRIX_ACCESS_TOKEN: ours } = config;
  if (!baseUrl) throw new MatrixError(0, 'no homeserver was named');
  return token ? { baseUrl, token, as: 'user' } : { baseUrl, token: ours, as: 'oracle' };
}

/** A name such as `matrix.org` says by its well-known file where it is served. */
export async function baseUrlOf(
  homeServer: string,
  fetch: SafeFetch,
  signal?: AbortSignal,
): Promise<string> {
  if (/^https?:\/\//i.test(homeServer)) return originOf(homeServer);
  const fallback = originOf(`https://${homeServer}`);
  try {
    const response = await fetch(`${fallback}/.well-known/matrix/client`, {
      ...WELL_KNOWN_LIMITS,
      ...(signal && { signal }),
    });
    const told = (await response.json()) as { 'm.homeserver'?: { base_url?: unknown } };
    const { base_url: baseUrl } = told['m.homeserver'] ?? {};
    return typeof baseUrl === 'string' ? originOf(baseUrl) : fallback;
  } catch {
    signal?.throwIfAborted();
    return fallback;
  }
}

function originOf(text: string): string {
  const url = URL.parse(text);
  if (!url) throw new MatrixError(0, 'the homeserver is not a valid address');
  return `${url.protocol}//${url.host}`;
}

/** The headers that go with a request to this homeserver. */
export const authorization = ({ token }: Homeserver): Record<string, string> =>
  token === undefined ? {} : { authorization: `Bearer ${token}` };

interface JsonRequest {
  readonly method?: 'GET' | 'PUT' | 'POST';
  readonly path: string;
  readonly body?: object;
  readonly signal?: AbortSignal;
}

/** Asks the client-server API for JSON. */
export async function askMatrix<T>(
  homeserver: Homeserver,
  { method = 'GET', path, body, signal }: JsonRequest,
  fetch: SafeFetch,
): Promise<T> {
  const asked = fetch(`${homeserver.baseUrl}/_matrix/client/v3${path}`, {
    method,
    headers: { ...authorization(homeserver), 'content-type': 'application/json' },
    ...(body && { body: JSON.stringify(body) }),
    ...(signal && { signal }),
    ...JSON_LIMITS,
  });
  const response = await asked.catch((error) => {
    throw hideAddress(error);
  });
  const answer = await response.json().catch((error) => {
    // Proxies explain their faults in HTML; the status says enough.
    if (response.ok || error?.name !== 'SyntaxError') throw hideAddress(error);
    return {};
  });
  if (response.ok) return answer as T;
  const { errcode = '', error = 'no reason given' } = (answer ?? {}) as Record<string, unknown>;
  const reason = `${errcode} (${error})`.slice(0, REASON_LENGTH);
  throw new MatrixError(response.status, `the homeserver answered ${response.status} ${reason}`);
}

/** What a homeserver says of itself may be of any length. */
const REASON_LENGTH = 300;

/** Where a homeserver is and why it was not reached is for the log: models and users see this message. */
function hideAddress(error: unknown): unknown {
  if (!(error instanceof Error) || !HIDDEN.has(error.name)) return error;
  return new MatrixError(0, 'the homeserver cannot be reached', { cause: error });
}

const HIDDEN: ReadonlySet<string> = new Set(['SafeFetchError', 'SyntaxError']);

/** A path segment. */
export const segment = (text: string): string => encodeURIComponent(text);

const Url = z
  .url({ protocol: /^https?$/ })
  .transform((url) => url.replace(/\/+$/, ''))
  .optional();

/** The variables of the plugin. */
export const MatrixConfig = z.object({
  MATRIX_BASE_URL: Url.describe(
    "The oracle's homeserver; also where files are looked up for users who name none",
  ),
  MATRIX_ACCESS_TOKEN: z
    .string()
    .min(1)
    .optional()
    .describe(
      "The oracle's own access token, used towards MATRIX_BASE_URL only; with it, preferences are kept in the user's room with the oracle",
    ),
});
export type MatrixConfig = z.output<typeof MatrixConfig>;
