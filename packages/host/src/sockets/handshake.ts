import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { Handshake, OracleError } from '@sibyl/protocol';
import type { Socket } from 'socket.io';
import {
  type Authenticator,
  type Credentials,
  type PresentedDelegations,
  proveCaller,
} from '../auth/authenticator.js';
import type { ProvenCaller } from '../auth/caller.js';
import type { CallerAllowList } from '../auth/caller-allow-list.js';
import type { RateLimits } from '../auth/rate-limits.js';
import { type EventBus, type Position, parsePosition, type SessionKey } from '../bus/event-bus.js';
import type { PendingClientCalls } from '../bus/pending-client-calls.js';
import type { SocketPresence } from '../bus/socket-presence.js';
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
  readonly presence: SocketPresence;
  readonly pendingCalls: PendingClientCalls;
  readonly readAddress: (request: IncomingMessage) => string;
}

/** The caller and session of a socket, and the events that have arrived since the handshake. */
export interface SocketContext extends Omit<HandshakeData, 'sessionId'> {
  readonly session: SessionKey;
  readonly caller: ProvenCaller;
  readonly inbox: Inbox;
}

/** Accepts one socket per connection, of an authenticated caller and for a session of this caller. */
export class HandshakeVerifier {
  private readonly known = new WeakSet<Connection>();

  constructor(private readonly deps: HandshakeDeps) {}

  async verify(socket: Socket): Promise<SocketContext> {
    // A client could send many handshakes before the first response.
    if (this.known.has(socket.conn)) throw new OracleError('bad_request', { message: ONE_SOCKET });
    this.known.add(socket.conn);
    const address = this.deps.readAddress(socket.request);
    const { sessionId, ...handshake } = await this.read(socket, address);
    const caller = await proveCaller(this.deps, { credentials: handshake.credentials, address });
    await this.deps.allowList.assertAllowed(caller.did);
    if (caller.login) await this.deps.presented.record(caller.login);
    const session = { owner: caller.did, sessionId };
    return {
      ...handshake,
      session,
      caller,
      inbox: await this.openInbox(session, socket.conn),
    };
  }

  /** Failed attempts count against the address, as over HTTP. */
  private async read({ handshake }: Socket, address: string): Promise<HandshakeData> {
    try {
      return readHandshake(handshake);
    } catch (refusal) {
      this.deps.limits.takeAnonymous(address);
      throw refusal;
    }
  }

  private async openInbox(session: SessionKey, connection: Connection): Promise<Inbox> {
    const { registry, events, sessions, presence, pendingCalls } = this.deps;
    onceClosed(connection, registry.addSocket(session));
    // Subscribes before it reads the session, so that no deletion in between is missed.
    const inbox = new Inbox(events, session, () => terminate(connection));
    onceClosed(connection, () => inbox.close());
    // Before it announces a socket, which only the owner of the session may open.
    await sessions.get(session);
    registry.assertBelowUserLimit(session.owner, await presence.countElsewhere(session.owner));
    const announcing = presence.open(session);
    onceClosed(connection, () => presence.close(session));
    await announcing;
    await pendingCalls.load(session);
    return inbox;
  }
}

const ONE_SOCKET = 'A connection has only one socket; open another connection';

export interface HandshakeData {
  readonly sessionId: string;
  readonly credentials: Credentials;
  /** The last position that a reconnecting client has received; undefined for a new client. */
  readonly seen: Position | undefined;
  /** Identifies the stream of events; a reconnecting client sends it again. */
  readonly streamId: string;
  /** Whether events carry their position as the last argument; clients with one-argument handlers turn it off. */
  readonly hasPositions: boolean;
}

/** Reads the fields of a handshake; does not verify the credentials. */
function readHandshake({ query, auth }: Socket['handshake']): HandshakeData {
  const { success, data: sessionId } = Handshake.shape.sessionId.safeParse(query.sessionId);
  if (!success) throw new OracleError('validation_failed', { message: NO_SESSION });
  const seen = parsePosition(auth.offset);
  const isBack = seen !== undefined && typeof auth.pid === 'string' && auth.pid.length <= 64;
  return {
    sessionId,
    credentials: {
      // A value that is not a string is an invalid invocation, not a missing one.
      invocation: isMissing(auth.invocation) ? undefined : readText(auth.invocation),
      delegation: readText(auth.ucanDelegation) || undefined,
    },
    seen: isBack ? seen : undefined,
    streamId: isBack ? auth.pid : randomUUID(),
    hasPositions: auth.positions !== false,
  };
}

const NO_SESSION = 'sessionId: must be in the query of the handshake';

const isMissing = (value: unknown) => value === undefined || value === null;

const readText = (value: unknown) => (typeof value === 'string' ? value.trim() : '');
