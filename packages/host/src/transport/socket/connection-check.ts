import { randomUUID } from 'node:crypto';
import { type IncomingMessage, ServerResponse } from 'node:http';
import { OracleError } from '@sibyl/protocol';
import { bodyOf, oracleErrorOf } from '../error.filter.js';
import { rawAnswer } from '../raw-answer.js';
import type { ConnectionRegister } from './connection-register.js';

interface ConnectionCheckParts {
  readonly register: ConnectionRegister;
  /** `*` for all. */
  readonly corsOrigins: readonly string[];
  readonly addressOf: (request: IncomingMessage) => string;
  readonly isClosing: () => boolean;
}

type Next = () => void;

/** Turns requests away before a connection is made of them. */
export function createConnectionCheck({
  register,
  corsOrigins,
  addressOf,
  isClosing,
}: ConnectionCheckParts) {
  const check = (request: IncomingMessage) => {
    if (!isAllowed(request, corsOrigins)) throw new OracleError('origin_not_allowed');
    if (isOfConnection(request)) return;
    if (isClosing()) throw new OracleError('host_stopping', { retryAfterSeconds: 5 });
    register.assertRoom(addressOf(request));
  };
  return (request: IncomingMessage, response: ServerResponse, next: Next): void => {
    try {
      check(request);
      response.setHeader('X-Request-Id', randomUUID());
      next();
    } catch (error) {
      refuse(request, response, oracleErrorOf(error));
    }
  };
}

/** Pages of other origins need to be named; the host's own page does not, nor does what is no page. */
function isAllowed({ headers }: IncomingMessage, origins: readonly string[]): boolean {
  const { origin, host } = headers;
  if (origin === undefined || origins.includes('*') || origins.includes(origin)) return true;
  return URL.canParse(origin) && new URL(origin).host === host;
}

/** Whether a request belongs to a connection that was let in before. */
function isOfConnection({ url = '' }: IncomingMessage): boolean {
  return new URL(url, 'http://host').searchParams.has('sid');
}

/** An upgrade has no response of its own to write to. */
function refuse(request: IncomingMessage, response: ServerResponse, error: OracleError): void {
  if (!(response instanceof ServerResponse)) {
    request.socket.on('error', () => undefined);
    request.socket.end(rawAnswer(error));
    return;
  }
  const requestId = randomUUID();
  response.writeHead(error.status, {
    'Content-Type': 'application/json; charset=utf-8',
    'X-Request-Id': requestId,
    ...(error.retryAfterSeconds && { 'Retry-After': error.retryAfterSeconds }),
  });
  response.end(JSON.stringify(bodyOf(error, requestId)));
}
