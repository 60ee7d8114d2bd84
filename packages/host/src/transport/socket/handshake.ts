import { randomUUID } from 'node:crypto';
import { Handshake, OracleError } from '@sibyl/protocol';
import type { Socket } from 'socket.io';
import type { Credentials } from '../../auth/authenticator.js';
import { type Position, readPosition } from '../../events/position.js';

export interface ReadHandshake {
  readonly sessionId: string;
  readonly credentials: Credentials;
  /** What a client that comes back has seen; undefined for a new one. */
  readonly seen: Position | undefined;
  /** What the client knows its stream of events by. */
  readonly streamId: string;
}

/** Reads what a socket presents (contract A3); whether it is true is for others to say. */
export function readHandshake({ query, auth }: Socket['handshake']): ReadHandshake {
  const { success, data: sessionId } = Handshake.shape.sessionId.safeParse(query.sessionId);
  if (!success) throw new OracleError('validation_failed', { message: NO_SESSION });
  const seen = readPosition(auth.offset);
  const isBack = seen !== undefined && typeof auth.pid === 'string' && auth.pid.length <= 64;
  return {
    sessionId,
    credentials: {
      // What is no text is a bad invocation, not a missing one.
      invocation: isMissing(auth.invocation) ? undefined : textOf(auth.invocation),
      delegation: textOf(auth.ucanDelegation) || undefined,
    },
    seen: isBack ? seen : undefined,
    streamId: isBack ? auth.pid : randomUUID(),
  };
}

const NO_SESSION = 'sessionId: must be in the query of the handshake';

const isMissing = (value: unknown) => value === undefined || value === null;

const textOf = (value: unknown) => (typeof value === 'string' ? value.trim() : '');
