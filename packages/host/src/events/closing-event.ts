import type { ClosingReason } from '@sibyl/protocol';
import type { ServerEvent } from './server-event.js';

const messages: Readonly<Record<ClosingReason, string>> = {
  token_expired: 'The token has expired; connect again with a fresh one',
  token_revoked: 'The delegation of this connection was revoked; connect again with another proof',
  caller_not_allowed: 'The operator has removed you from the users of this oracle',
  session_deleted: 'The session was deleted',
  rate_limited: 'Too many events; wait a minute before you connect again',
  host_stopping: 'The host is stopping; connect again in a moment',
};

/** The last that a socket is told: why it ends. */
export function closingEvent(reason: ClosingReason, sessionId: string): ServerEvent<'closing'> {
  const timestamp = new Date().toISOString();
  return { event: 'closing', payload: { reason, message: messages[reason], sessionId, timestamp } };
}
