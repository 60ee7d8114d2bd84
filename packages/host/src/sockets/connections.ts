import { OracleError } from '@sibyl/protocol';
import type { Socket } from 'socket.io';
import type { EventBus, Listener, ServerEvent, SessionKey } from '../bus/event-bus.js';
import type { SocketUser } from '../bus/socket-presence.js';

interface RegisterOptions {
  readonly maxPerUser: number;
  readonly maxPerAddress: number;
  readonly maxTotal: number;
}

/** Counts open connections: by address at once, by user after authentication. */
export class ConnectionRegistry {
  private readonly options: RegisterOptions;
  /** At most as many entries as connections, as in `users`. */
  private readonly addresses = new Map<string, number>();
  private total = 0;
  /** User → session → sockets. */
  private readonly users = new Map<string, Map<string, number>>();
  private open = 0;

  constructor(options: RegisterOptions) {
    this.options = options;
  }

  assertBelowLimit(address: string): void {
    if ((this.addresses.get(address) ?? 0) >= this.options.maxPerAddress)
      throw new OracleError('too_many_sockets', { retryAfterSeconds: 60 });
    if (this.total >= this.options.maxTotal)
      throw new OracleError('sockets_full', { retryAfterSeconds: 60 });
  }

  /** Counts a connection of an address; returns the function that removes it. Throws at the limit. */
  addConnection(address: string): () => void {
    this.assertBelowLimit(address);
    add(this.addresses, address, 1);
    this.total += 1;
    return () => {
      add(this.addresses, address, -1);
      this.total -= 1;
    };
  }

  /** Throws if a user has more sockets than allowed, here and at other hosts. */
  assertBelowUserLimit(owner: string, elsewhere: number): void {
    if (this.countFor(owner).totalConnections + elsewhere > this.options.maxPerUser)
      throw new OracleError('too_many_sockets', { retryAfterSeconds: 60 });
  }

  /** Counts a socket of a user; returns the function that removes it. Throws at the limit. */
  addSocket({ owner, sessionId }: SessionKey): () => void {
    this.assertBelowUserLimit(owner, 1);
    const sessions = this.users.get(owner) ?? new Map<string, number>();
    this.users.set(owner, sessions);
    add(sessions, sessionId, 1);
    return () => {
      add(sessions, sessionId, -1);
      if (sessions.size === 0) this.users.delete(owner);
    };
  }

  /** Counts a socket whose handshake was accepted; returns the function that removes it. */
  addOpenSocket(): () => void {
    this.open += 1;
    return () => {
      this.open -= 1;
    };
  }

  /** Of all users. */
  get openSockets(): number {
    return this.open;
  }

  /** Users with their open sockets, those with most first. */
  listUsers(): SocketUser[] {
    return [...this.users.keys()]
      .map((did) => ({ did, count: this.countFor(did).totalConnections }))
      .sort((a, b) => b.count - a.count);
  }

  countFor(owner: string): { activeSessions: number; totalConnections: number } {
    const counts = [...(this.users.get(owner)?.values() ?? [])];
    return {
      activeSessions: counts.length,
      totalConnections: counts.reduce((sum, count) => sum + count, 0),
    };
  }
}

function add(counts: Map<string, number>, key: string, change: 1 | -1): void {
  const count = (counts.get(key) ?? 0) + change;
  if (count > 0) counts.set(key, count);
  else counts.delete(key);
}

/** The transport below a socket. */
export type Connection = Socket['conn'];

/** Runs a task when the connection closes, or at once if it is closed. */
export function onceClosed(connection: Connection, task: () => void): void {
  if (connection.readyState === 'closed') task();
  else connection.once('close', task);
}

/** Closes a connection at once, even if the client has unread data. */
export function terminate(connection: Connection): void {
  const { transport } = connection as { transport: { socket?: { terminate(): void } } };
  connection.close(true);
  // Closing a WebSocket waits for an answer, which a client that reads nothing never sends.
  transport.socket?.terminate();
}

/** Limits of events that wait for a client that is catching up: their number, and the characters of their JSON. */
const MAX_WAITING = 1000;
const MAX_LENGTH = 1024 * 1024;

/** Receives the events of a session at once, and keeps them until it is opened. */
export class Inbox {
  private readonly leave: () => void;
  private waiting: ServerEvent[] = [];
  private length = 0;
  private isFull = false;
  private deliver: Listener = (event) => this.keep(event);

  constructor(
    bus: EventBus,
    session: SessionKey,
    /** Called if it cannot deliver all events; the client finds them in the store. */
    private readonly onLoss: () => void,
  ) {
    this.leave = bus.subscribe(session, (event) => this.deliver(event), onLoss);
  }

  /** Delivers the waiting events, then all further ones. */
  open(deliver: Listener): void {
    const waiting = this.waiting;
    this.waiting = [];
    this.length = 0;
    this.deliver = deliver;
    // It may be paused by one of them.
    for (const event of waiting) this.deliver(event);
  }

  /** Keeps the events from now on, until it is opened again. */
  pause(): void {
    this.deliver = (event) => this.keep(event);
  }

  close(): void {
    this.leave();
    this.waiting = [];
    this.length = 0;
  }

  private keep(event: ServerEvent): void {
    if (this.isFull) return;
    this.length += JSON.stringify(event.payload).length;
    if (this.waiting.push(event) <= MAX_WAITING && this.length <= MAX_LENGTH) return;
    this.isFull = true;
    this.waiting = [];
    this.onLoss();
  }
}
