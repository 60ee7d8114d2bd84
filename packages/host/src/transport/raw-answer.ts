import { randomUUID } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import type { OracleError } from '@sibyl/protocol';
import { bodyOf } from './error.filter.js';

/** A whole HTTP answer, for connections that have no response to write to. */
export function rawAnswer(error: OracleError): string {
  const requestId = randomUUID();
  const body = JSON.stringify(bodyOf(error, requestId));
  return [
    `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}`,
    'Content-Type: application/json; charset=utf-8',
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-Id: ${requestId}`,
    ...(error.retryAfterSeconds ? [`Retry-After: ${error.retryAfterSeconds}`] : []),
    'Connection: close',
    '',
    body,
  ].join('\r\n');
}
