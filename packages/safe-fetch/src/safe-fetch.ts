import type { IncomingMessage } from 'node:http';
import {
  type AddressLookup,
  createAllowList,
  dnsLookup,
  type ResolveRules,
  resolveHost,
  systemLookup,
} from './address-rules.js';
import {
  type BodyLimits,
  type ConnectionLimits,
  type ConnectionSlot,
  ConnectionSlots,
  type Deadline,
  isRedirect,
  type OutgoingRequest,
  redirectedRequest,
  sendRequest,
  toOutgoingRequest,
  toResponse,
} from './exchange.js';

import { SafeFetchError, toSafeFetchError } from './safe-fetch-error.js';

const MAX_REDIRECTS = 3;

export interface SafeFetchLimits {
  /** Largest body, counted while it is read; 5 MiB by default. */
  readonly maxBytes?: number | undefined;
  /** Time for everything: DNS, redirects and the whole body; 30 s by default, Infinity for none. */
  readonly timeoutMs?: number | undefined;
  /** How many redirects to follow, at most and by default 3; 0 refuses the first. */
  readonly redirects?: number | undefined;
}

export interface SafeFetchOptions extends SafeFetchLimits, Partial<ConnectionLimits> {
  /**
   * What is open beyond the public internet, without TLS too: `host`, `host:port` (trusted by name) or CIDRs. A name
   * that only the system knows, from its hosts file or search domains, is found if it stands here itself.
   */
  readonly allow?: readonly string[] | undefined;
  /** Certificate authorities in PEM, trusted instead of Node's own. */
  readonly ca?: string | undefined;
  /** Replaces DNS. */
  readonly lookup?: AddressLookup | undefined;
}

/** fetch's init with limits for this one request; only method, headers, body, signal and redirect count. */
export interface SafeFetchInit extends RequestInit, SafeFetchLimits {}

type SafeFetchInput = Parameters<typeof fetch>[0];

/**
 * Resolves to a Response with a streamed body. Refusals, limits and failures throw SafeFetchError, also out of
 * the body while it is read; an abort throws the signal's reason.
 */
export type SafeFetch = (input: SafeFetchInput, init?: SafeFetchInit) => Promise<Response>;

type SettledLimits = { readonly [K in keyof SafeFetchLimits]-?: number };

interface Settings extends ResolveRules {
  readonly slots: ConnectionSlots;
  readonly ca: string | undefined;
  readonly limits: SettledLimits;
}

interface FetchContext {
  readonly settings: Settings;
  readonly limits: SettledLimits;
  readonly deadline: Deadline;
  readonly slot: ConnectionSlot;
  readonly followsRedirects: boolean;
}

/** Makes a fetch for URLs that others chose: checked and pinned addresses, bounded size, time and redirects. */
export function createSafeFetch(options: SafeFetchOptions = {}): SafeFetch {
  const { maxConnections = 512, maxConnectionsPerHost = 64 } = options;
  const settings: Settings = {
    slots: new ConnectionSlots({ maxConnections, maxConnectionsPerHost }),
    allowList: createAllowList(options.allow ?? []),
    lookupAllowed: options.lookup ?? systemLookup,
    lookup: options.lookup ?? dnsLookup(),
    ca: options.ca,
    limits: settleLimits(options, { maxBytes: 5 * 1024 ** 2, timeoutMs: 30_000, redirects: 3 }),
  };
  return (input, init = {}) =>
    typeof input === 'string' || input instanceof URL
      ? fetchSafely(input, init, settings)
      : fetchSafely(input.url, { ...readRequest(input), ...init }, settings);
}

/** What a Request states; `init` replaces it, as with fetch. */
const readRequest = ({ method, headers, body, signal, redirect }: Request): SafeFetchInit => ({
  method,
  headers,
  body,
  signal,
  redirect,
});

async function fetchSafely(input: string | URL, init: SafeFetchInit, settings: Settings) {
  const request = await toOutgoingRequest(checkUrl(input), init);
  const limits = settleLimits(init, settings.limits);
  const slot = settings.slots.take(request.url.host);
  const deadline = startDeadline(limits.timeoutMs, init.signal, () => slot.release());
  try {
    const followsRedirects = init.redirect !== 'manual';
    return await exchange(request, { settings, limits, deadline, slot, followsRedirects });
  } catch (error) {
    deadline.clear();
    if (deadline.signal.aborted) throw deadline.signal.reason;
    throw toSafeFetchError(error, request.url.host);
  }
}

async function exchange(
  first: OutgoingRequest,
  { settings, limits, deadline, ...rest }: FetchContext,
) {
  const { signal } = deadline;
  let request = first;
  for (let followed = 0; ; followed++) {
    const { host } = request.url;
    const addresses = await resolveHost(request.url, settings, signal);
    const message = await sendRequest(request, { addresses, ca: settings.ca, signal });
    const status = message.statusCode ?? 0;
    const location = rest.followsRedirects && isRedirect(status) && message.headers.location;
    if (typeof location !== 'string') {
      return respond(message, request, { host, maxBytes: limits.maxBytes, deadline });
    }
    message.destroy();
    if (!(followed < limits.redirects)) throw tooManyRedirects(host, limits.redirects);
    request = redirectedRequest(request, status, checkRedirect(location, request.url));
    rest.slot.move(request.url.host);
  }
}

function respond(message: IncomingMessage, request: OutgoingRequest, limits: BodyLimits) {
  try {
    return toResponse(message, request, limits);
  } catch (error) {
    message.destroy();
    throw error;
  }
}

function settleLimits(
  asked: SafeFetchLimits & Pick<RequestInit, 'redirect'>,
  fallback: SettledLimits,
): SettledLimits {
  const redirects = asked.redirect === 'error' ? 0 : (asked.redirects ?? fallback.redirects);
  return {
    maxBytes: asked.maxBytes ?? fallback.maxBytes,
    timeoutMs: asked.timeoutMs ?? fallback.timeoutMs,
    redirects: Math.min(redirects, MAX_REDIRECTS),
  };
}

function tooManyRedirects(host: string, limit: number): SafeFetchError {
  const advice = 'ask for the final address instead';
  return new SafeFetchError(
    'too_many_redirects',
    `${host} redirects once more than the ${limit} allowed; ${advice}.`,
  );
}

/** Parses what is about to be asked and refuses what no request may ever name; who may do without TLS is for its address to say. */
function checkUrl(input: string | URL): URL {
  const url = URL.parse(String(input));
  if (!url) throw new SafeFetchError('url_invalid', 'The URL is not valid; give an absolute one.');
  if (url.protocol !== 'https:' && url.protocol !== 'http:') {
    throw new SafeFetchError('scheme_refused', `${url.protocol} is refused; use https.`);
  }
  if (url.username || url.password) {
    throw new SafeFetchError(
      'url_invalid',
      'The URL carries a user name or password; send credentials in a header.',
    );
  }
  return url;
}

/** Checks the target of a redirect; one from https to http is always refused. */
function checkRedirect(location: string, from: URL): URL {
  const target = URL.parse(location, from.href);
  if (!target) {
    throw new SafeFetchError('url_invalid', `${from.host} redirects to an invalid URL.`);
  }
  if (from.protocol === 'https:' && target.protocol === 'http:') {
    throw new SafeFetchError('scheme_refused', `${from.host} redirects from https to http.`);
  }
  return checkUrl(target);
}

/** The longest delay a Node timer keeps; a longer one would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** `onClear` is called when the exchange is over, at least once. */
export function startDeadline(
  timeoutMs: number,
  caller: AbortSignal | null | undefined,
  onClear: () => void,
): Deadline {
  const controller = new AbortController();
  const expire = () => {
    const limit = `no full answer within ${timeoutMs} ms; retry later or raise timeoutMs`;
    controller.abort(new SafeFetchError('timeout', `The server gave ${limit}.`));
  };
  const follow = () => controller.abort(caller?.reason);
  const timer = setTimeout(expire, Math.min(timeoutMs, MAX_TIMER_MS));
  if (caller?.aborted) follow();
  caller?.addEventListener('abort', follow, { once: true });
  return {
    signal: controller.signal,
    clear() {
      onClear();
      clearTimeout(timer);
      caller?.removeEventListener('abort', follow);
    },
  };
}
