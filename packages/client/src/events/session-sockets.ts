import type { ClientEventName, ServerEventName } from '@sibyl/protocol';
import { PendingCalls } from '../browser-tools/tool-calls.js';
import { OracleClientError } from '../errors.js';
import { Listeners } from '../listeners.js';
import type { OpenSocket, SocketOptions } from './reconnecting-socket.js';
import type {
  ConnectionState,
  ServerEvent,
  ServerEvents,
  SessionEvents,
} from './session-events.js';

interface SharedSocket {
  readonly socket: SessionSocket;
  refCount: number;
}

/** The sockets of a client: one for each session that somebody listens to. */
export class SessionSockets {
  private readonly parts: Omit<SocketDeps, 'sessionId'>;
  private readonly sockets = new Map<string, SharedSocket>();

  constructor(parts: Omit<SocketDeps, 'sessionId'>) {
    this.parts = parts;
  }

  open(sessionId: string): SessionEvents {
    return this.openWithCalls(sessionId).events;
  }

  /** The events of a session, and the calls among them. */
  openWithCalls(sessionId: string): {
    readonly events: SessionEvents;
    readonly calls: PendingCalls;
  } {
    const shared = this.take(sessionId);
    const { socket } = shared;
    const events = createSessionEvents(sessionId, socket, () => this.leave(sessionId, shared));
    return { events, calls: socket.calls };
  }

  close(): void {
    for (const { socket } of this.sockets.values()) socket.close();
    this.sockets.clear();
  }

  private take(sessionId: string): SharedSocket {
    const known = this.sockets.get(sessionId);
    // A socket the host refused for good is no use to who comes next.
    if (known && known.socket.state !== 'disconnected') {
      known.refCount += 1;
      return known;
    }
    const shared = { socket: new SessionSocket({ ...this.parts, sessionId }), refCount: 1 };
    this.sockets.set(sessionId, shared);
    return shared;
  }

  private leave(sessionId: string, shared: SharedSocket): void {
    shared.refCount -= 1;
    if (shared.refCount > 0) return;
    shared.socket.close();
    if (this.sockets.get(sessionId) === shared) this.sockets.delete(sessionId);
  }
}

/** What one holder sees of a socket; closing it ends all that this holder asked for. */
function createSessionEvents(
  sessionId: string,
  socket: SessionSocket,
  leave: () => void,
): SessionEvents {
  const endings = new Set<() => void>();
  const until = (stop: () => void) => {
    const end = () => {
      endings.delete(end);
      stop();
    };
    endings.add(end);
    return end;
  };
  const on: SessionEvents['on'] = (name, listener) =>
    until(
      socket.events.add((event) => {
        if (event.name === name) listener(event.payload as never);
      }),
    );
  const ask = <Name extends ServerEventName>(question: ClientEventName, answer: Name) =>
    new Promise<ServerEvents[Name]>((resolve) => {
      const stop = on(answer, (payload) => {
        stop();
        resolve(payload);
      });
      socket.emit(question, undefined);
    });
  let isOpen = true;
  return {
    sessionId,
    get state() {
      return isOpen ? socket.state : 'disconnected';
    },
    on,
    onAny: (listener) => until(socket.events.add((event: ServerEvent) => listener(event))),
    onState: (listener) => until(socket.states.add(listener)),
    ready: () => socket.ready(),
    emit: (name, payload) => socket.emit(name, payload),
    ping: () => ask('ping', 'pong'),
    status: () => ask('status', 'status'),
    catalog: () => ask('list-events', 'available-events'),
    close: () => {
      if (!isOpen) return;
      isOpen = false;
      for (const end of [...endings]) end();
      leave();
    },
  };
}

type SocketDeps = Pick<SocketOptions, 'url' | 'sessionId' | 'token'>;

/** The one socket of a session; its code is loaded when it is made. */
class SessionSocket {
  readonly events = new Listeners<ServerEvent>();
  readonly calls = new PendingCalls();
  readonly states = new Listeners<ConnectionState>();
  private connection: ConnectionState = 'connecting';
  private refusal: Error | undefined;
  private isClosed = false;
  private socket: OpenSocket | undefined;
  private unsent: { readonly name: ClientEventName; readonly payload: unknown }[] = [];

  constructor(parts: SocketDeps) {
    this.open(parts).catch((cause) => this.enter('disconnected', cause));
  }

  get state(): ConnectionState {
    return this.connection;
  }

  emit(name: ClientEventName, payload: unknown): void {
    if (this.socket) this.socket.emit(name, payload);
    else this.unsent.push({ name, payload });
  }

  ready(): Promise<void> {
    return new Promise((resolve, reject) => {
      const settle = () => {
        if (this.connection === 'connecting') return;
        stop();
        if (this.connection === 'connected') resolve();
        else reject(this.refused());
      };
      const stop = this.states.add(settle);
      settle();
    });
  }

  close(): void {
    this.isClosed = true;
    this.socket?.close();
    this.enter('disconnected', new Error('The connection was closed here'));
  }

  private async open(parts: SocketDeps): Promise<void> {
    const { openSocket } = await import('./reconnecting-socket.js');
    if (this.isClosed) return;
    const socket = openSocket({
      ...parts,
      onEvent: (name, data) => this.receive(toServerEvent(name as ServerEventName, data)),
      onState: (state, refusal) => this.enter(state, refusal),
    });
    for (const { name, payload } of this.unsent) socket.emit(name, payload);
    this.unsent = [];
    this.socket = socket;
  }

  private receive(event: ServerEvent): void {
    const { name, payload } = event;
    if (name === 'browser_tool_call') this.calls.add({ kind: 'tool', call: payload });
    if (name === 'action_call') this.calls.add({ kind: 'action', call: payload });
    this.events.notify(event);
  }

  private enter(state: ConnectionState, refusal?: Error): void {
    this.refusal = refusal;
    if (this.connection === state) return;
    this.connection = state;
    this.states.notify(state);
  }

  private refused(): OracleClientError {
    const cause = this.refusal;
    const message = `No events: ${cause?.message ?? 'the host refuses the connection'}`;
    return new OracleClientError('connection_lost', message, { cause });
  }
}

/** Some payloads travel in an envelope that repeats the name (contract B5). */
function toServerEvent(name: ServerEventName, data: unknown): ServerEvent {
  const envelope = (data ?? {}) as { readonly eventName?: unknown; readonly payload?: unknown };
  const payload = envelope.eventName === name ? envelope.payload : data;
  return { name, payload } as ServerEvent;
}
