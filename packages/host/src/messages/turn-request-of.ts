import { IdempotencyKey, OracleError, type SendMessage } from '@sibyl/protocol';
import type { ProvenRequest } from '../auth/oracle-request.js';
import { readTimezone } from '../turn/read-timezone.js';
import type { TurnRequest } from '../turn/turn-request.js';

export interface Sent {
  readonly sessionId: string;
  readonly body: SendMessage;
  readonly request: ProvenRequest;
}

/**
 * Leaves HTTP behind: what the body and the headers say becomes one request for a turn. The body is emptied: the request
 * may wait for hours, and the framework keeps its arguments until it is answered.
 */
export function takeTurnRequest(sent: Sent): TurnRequest {
  const turn = createTurnRequest(sent);
  Object.assign(sent.request, { rawBody: undefined, body: undefined });
  for (const field of Object.keys(sent.body)) Reflect.deleteProperty(sent.body, field);
  return turn;
}

function createTurnRequest({ sessionId, body, request }: Sent): TurnRequest {
  const { stream: _, returnAllMessages: __, requestId, ...message } = body;
  const { timezone, warnings } = readTimezone(message.timezone, request.header('x-timezone'));
  return {
    caller: request.caller,
    sessionId,
    requestId: requestId ?? request.requestId,
    message,
    user: {
      timezone,
      matrixHomeServer: message.homeServer ?? request.header('x-matrix-homeserver'),
      matrixAccessToken: request.header('x-matrix-access-token'),
    },
    warnings,
    client: 'api',
    idempotencyKey: idempotencyKeyOf(request.header('idempotency-key')),
  };
}

function idempotencyKeyOf(header: string | undefined): string | undefined {
  if (header === undefined) return undefined;
  const { data, error } = IdempotencyKey.safeParse(header);
  if (!error) return data;
  throw new OracleError('validation_failed', {
    message: error.issues.map(({ message }) => `idempotency-key: ${message}`),
  });
}
