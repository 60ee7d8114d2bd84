import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { Handshake, OracleError } from '@sibyl/protocol';
import type { Socket } from 'socket.io';
import { type Authenticator, proveCaller } from '../auth/authenticator.js';
import type { Caller, Credentials } from '../auth/caller.js';
import type { CallerAllowList } from '../auth/caller-allow-list.js';
import type { PresentedDelegations } from '../auth/presented-delegations.js';
import type { RateLimits } from '../auth/rate-limits.js';
import { type Audience, type EventBus, type Position, readPosition } from '../bus/event-bus.js';
import type { SessionStore } from '../store/session-store.js';
import {
  type Connection,
  type ConnectionRegistry,
  Inbox,
  onceClosed,
  terminate,
} from './connections.js';

interface HandshakeDeps {
  readonly authenticator: Authenticator;
  readonly limits: RateLimits;
  readonly allowList: CallerAllowList;
  readonly presented: PresentedDelegations;
  readonly sessions: SessionStore;
  readonly events: EventBus;
  readonly registry: ConnectionRegistry;
  readonly readAddress: (request: IncomingMessage) => string;
}

/** A socket's place: who sits there, in which session's audience, and what has come in since. */
export interface SocketContext extends Omit<HandshakeData, 'sessionId'> {
  readonly audience: Audience;
  readonly caller: Caller;
  readonly address: string;
  readonly inbox: Inbox;
}

/** Lets sockets in: with a proven caller, into a session of theirs, once per connection. */
export class HandshakeVerifier {
  private readonly known = new WeakSet<Connection>();

  constructor(private readonly deps: HandshakeDeps) {}

  async verify(socket: Socket): Promise<SocketContext> {
    // A client could ask again and again while the first answer is on its way.
    if (this.known.has(socket.conn)) throw new OracleError('bad_request', { message: ONE_SOCKET });
    this.known.add(socket.conn);
    const address = this.deps.readAddress(socket.request);
    const { sessionId, ...handshake } = await this.read(socket, address);
    const caller = await proveCaller(this.deps, { credentials: handshake.credentials, address });
    await this.deps.allowList.assertAllowed(caller.did);
    if (caller.login) await this.deps.presented.record(caller.login);
    const audience = { owner: caller.did, sessionId };
    return {
      ...handshake,
      audience,
      caller,
      address,
      inbox: await this.openInbox(audience, socket.conn),
    };
  }

  /** Failed attempts count against the address, as they do over HTTP. */
  private async read({ handshake }: Socket, address: string): Promise<HandshakeData> {
    try {
      return readHandshake(handshake);
    } catch (refusal) {
      this.deps.limits.takeAnonymous(address);
      throw refusal;
    }
  }

  private async openInbox(audience: Audience, connection: Connection): Promise<Inbox> {
    const { registry, events, sessions } = this.deps;
    onceClosed(connection, registry.context(audience));
    // Before the session is looked for, so that its deletion cannot be missed in between.
    const inbox = new Inbox(events, audience, () => terminate(connection));
    onceClosed(connection, () => inbox.close());
    await sessions.get(audience);
    return inbox;
  }
}

const ONE_SOCKET = 'A connection has one socket; connect anew for another';

export interface HandshakeData {
  readonly sessionId: string;
  readonly credentials: Credentials;
  /** What a client that comes back has seen; undefined for a new one. */
  readonly seen: Position | undefined;
  /** What the client knows its stream of events by. */
  readonly streamId: string;
}

/** Reads what a socket presents (contract A3); whether it is true is for others to say. */
function readHandshake({ query, auth }: Socket['handshake']): HandshakeData {
  const { success, data: sessionId } = Handshake.shape.sessionId.safeParse(query.sessionId);
  if (!success) throw new OracleError('validation_failed', { message: NO_SESSION });
  const seen = readPosition(auth.offset);
  const isBack = seen !== undefined && typeof auth.pid === 'string' && auth.pid.length <= 64;
  return {
    sessionId,
    credentials: {
      // What is no text is a bad invocation, not a missing one.
      invocation: isMissing(auth.invocation) ? undefined : readText(auth.invocation),
      delegation: readText(auth.ucanDelegation) || undefined,
    },
    seen: isBack ? seen : undefined,
    streamId: isBack ? auth.pid : randomUUID(),
  };
}

const NO_SESSION = 'sessionId: must be in the query of the handshake';

const isMissing = (value: unknown) => value === undefined || value === null;

const readText = (value: unknown) => (typeof value === 'string' ? value.trim() : '');
