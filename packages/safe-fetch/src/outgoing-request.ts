const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);
const BODILESS = new Set(['GET', 'HEAD']);
const REDIRECTS = new Set([301, 302, 303, 307, 308]);

/** Framing, routing and hop-by-hop headers are this package's to set. */
const OWN_HEADERS = [
  'accept-encoding',
  'connection',
  'content-length',
  'expect',
  'host',
  'keep-alive',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];

/** All that a redirect to another origin may carry; a list of secrets could never be complete. */
const HARMLESS_HEADERS = new Set(['accept', 'accept-language', 'user-agent', 'content-type']);

/** One request as it goes out; redirects make a new one. */
export interface OutgoingRequest {
  readonly url: URL;
  readonly method: string;
  readonly headers: Headers;
  readonly body: Uint8Array | undefined;
}

/** Reads fetch's init; the body is buffered, so that a 307 can send it again. */
export async function toOutgoingRequest(url: URL, init: RequestInit): Promise<OutgoingRequest> {
  const method = (init.method ?? 'GET').toUpperCase();
  if (!METHODS.has(method)) throw new TypeError(`The method ${method} is not supported.`);
  const headers = new Headers(init.headers);
  for (const name of OWN_HEADERS) headers.delete(name);
  if (init.body === undefined || init.body === null) {
    return { url, method, headers, body: undefined };
  }
  if (BODILESS.has(method)) throw new TypeError(`A ${method} request has no body.`);
  const carrier = new Response(init.body);
  const type = carrier.headers.get('content-type');
  if (type && !headers.has('content-type')) headers.set('content-type', type);
  return { url, method, headers, body: new Uint8Array(await carrier.arrayBuffer()) };
}

/** Claims that a status asks the client to go elsewhere. */
export function isRedirect(status: number): boolean {
  return REDIRECTS.has(status);
}

/** The request after a redirect: method as fetch changes it, and no credentials for another origin. */
export function redirectedRequest(
  request: OutgoingRequest,
  status: number,
  url: URL,
): OutgoingRequest {
  const method = redirectedMethod(request.method, status);
  const keepsBody = method === request.method;
  const headers = new Headers();
  for (const [name, value] of request.headers) {
    const crosses = url.origin === request.url.origin || HARMLESS_HEADERS.has(name);
    if (crosses && (keepsBody || !name.startsWith('content-'))) headers.append(name, value);
  }
  return { url, method, headers, body: keepsBody ? request.body : undefined };
}

function redirectedMethod(method: string, status: number): string {
  if (status === 303 && method !== 'HEAD') return 'GET';
  if ((status === 301 || status === 302) && method === 'POST') return 'GET';
  return method;
}
