import type { IncomingMessage } from 'node:http';
import { type BodyLimits, limitedBody, tooLarge } from './limited-body.js';
import type { OutgoingRequest } from './outgoing-request.js';
import { SafeFetchError } from './safe-fetch-error.js';

/** Statuses that a Response may only have without a body. */
const NULL_BODY = new Set([204, 205, 304]);

/** Turns Node's answer into a web Response whose body keeps the limits. */
export function toResponse(
  message: IncomingMessage,
  request: OutgoingRequest,
  limits: BodyLimits,
): Response {
  const headers = headersOf(message);
  const status = message.statusCode ?? 0;
  const isEmpty = request.method === 'HEAD' || NULL_BODY.has(status);
  if (!isEmpty) checkBodyHeaders(headers, limits);
  const body = isEmpty ? null : limitedBody(message, limits);
  if (isEmpty) {
    message.destroy();
    limits.deadline.clear();
  }
  const response = new Response(body, { status, statusText: message.statusMessage ?? '', headers });
  // A constructed Response has no url, and callers want to know where redirects ended.
  return Object.defineProperty(response, 'url', { value: request.url.href });
}

function headersOf(message: IncomingMessage): Headers {
  const headers = new Headers();
  for (let i = 0; i + 1 < message.rawHeaders.length; i += 2) {
    headers.append(message.rawHeaders[i] ?? '', message.rawHeaders[i + 1] ?? '');
  }
  return headers;
}

function checkBodyHeaders(headers: Headers, limits: BodyLimits): void {
  const encoding = headers.get('content-encoding')?.trim().toLowerCase() || 'identity';
  // Never decompressed, so a small answer cannot unfold into a large one.
  if (encoding !== 'identity') {
    throw new SafeFetchError(
      'network',
      `${limits.host} answered with content-encoding ${encoding}; it must send the plain body.`,
    );
  }
  if (!(Number(headers.get('content-length')) <= limits.maxBytes)) throw tooLarge(limits);
}
