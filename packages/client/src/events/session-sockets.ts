import type { ClientEventName, ServerEventName } from '@sibyl/protocol';
import { PendingCalls } from '../browser-tools/tool-calls.js';
import { OracleClientError } from '../errors.js';
import { Listeners } from '../listeners.js';
import type {
  ConnectionState,
  OpenSocket,
  ServerEvent,
  ServerEvents,
  SessionEvents,
  SocketOptions,
} from './reconnecting-socket.js';

interface SharedSocket {
  readonly socket: SessionSocket;
  refCount: number;
}

/** The sockets of a client: one per session with subscribers. */
export class SessionSockets {
  private readonly deps: Omit<SocketDeps, 'sessionId'>;
  private readonly sockets = new Map<string, SharedSocket>();

  constructor(deps: Omit<SocketDeps, 'sessionId'>) {
    this.deps = deps;
  }

  open(sessionId: string): SessionEvents {
    return this.openWithCalls(sessionId).events;
  }

  /** Also returns the tool calls among the events. */
  openWithCalls(sessionId: string): {
    readonly events: SessionEvents;
    readonly calls: PendingCalls;
  } {
    const shared = this.acquire(sessionId);
    const { socket } = shared;
    const events = createSessionEvents(sessionId, socket, () => this.release(sessionId, shared));
    return { events, calls: socket.calls };
  }

  close(): void {
    for (const { socket } of this.sockets.values()) socket.close();
    this.sockets.clear();
  }

  private acquire(sessionId: string): SharedSocket {
    const known = this.sockets.get(sessionId);
    // A rejected socket stays closed, so a new subscriber gets a new one.
    if (known && known.socket.state !== 'disconnected') {
      known.refCount += 1;
      return known;
    }
    const shared = { socket: new SessionSocket({ ...this.deps, sessionId }), refCount: 1 };
    this.sockets.set(sessionId, shared);
    return shared;
  }

  private release(sessionId: string, shared: SharedSocket): void {
    shared.refCount -= 1;
    if (shared.refCount > 0) return;
    shared.socket.close();
    if (this.sockets.get(sessionId) === shared) this.sockets.delete(sessionId);
  }
}

/** One subscriber's view of a socket; closing it removes this subscriber's listeners. */
function createSessionEvents(
  sessionId: string,
  socket: SessionSocket,
  release: () => void,
): SessionEvents {
  const removals = new Set<() => void>();
  const track = (remove: () => void) => {
    const removeOnce = () => {
      removals.delete(removeOnce);
      remove();
    };
    removals.add(removeOnce);
    return removeOnce;
  };
  const on: SessionEvents['on'] = (name, listener) =>
    track(
      socket.events.add((event) => {
        if (event.name === name) listener(event.payload as never);
      }),
    );
  const request = <Name extends ServerEventName>(name: ClientEventName, replyName: Name) =>
    new Promise<ServerEvents[Name]>((resolve, reject) => {
      const stops = [
        socket.events.add((event) => {
          if (event.name !== replyName) return;
          resolve(event.payload as never);
          stop();
        }),
        socket.states.add((state) => state === 'disconnected' && stop()),
      ];
      const stop = track(() => {
        for (const each of stops) each();
        // Without effect after the reply.
        reject(socket.toError(isOpen ? undefined : closedByClient()));
      });
      if (!isOpen || socket.state === 'disconnected') return stop();
      socket.emit(name, undefined);
    });
  let isOpen = true;
  return {
    sessionId,
    get state() {
      return isOpen ? socket.state : 'disconnected';
    },
    on,
    onAny: (listener) => track(socket.events.add((event: ServerEvent) => listener(event))),
    onState: (listener) => track(socket.states.add(listener)),
    ready: () => socket.ready(),
    emit: (name, payload) => socket.emit(name, payload),
    ping: () => request('ping', 'pong'),
    status: () => request('status', 'status'),
    catalog: () => request('list-events', 'available-events'),
    close: () => {
      if (!isOpen) return;
      isOpen = false;
      for (const remove of [...removals]) remove();
      release();
    },
  };
}

const closedByClient = () => new Error('The client closed the connection');

type SocketDeps = Pick<SocketOptions, 'url' | 'sessionId' | 'token'>;

/** The socket of a session; loads the socket code when it is created. */
class SessionSocket {
  readonly events = new Listeners<ServerEvent>();
  readonly calls = new PendingCalls();
  readonly states = new Listeners<ConnectionState>();
  private connection: ConnectionState = 'connecting';
  private failure: Error | undefined;
  private isClosed = false;
  private socket: OpenSocket | undefined;
  private unsent: { readonly name: ClientEventName; readonly payload: unknown }[] = [];

  constructor(deps: SocketDeps) {
    this.open(deps).catch((cause) => this.setState('disconnected', cause));
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
        else reject(this.toError());
      };
      const stop = this.states.add(settle);
      settle();
    });
  }

  close(): void {
    this.isClosed = true;
    this.socket?.close();
    this.setState('disconnected', closedByClient());
  }

  private async open(deps: SocketDeps): Promise<void> {
    const { openSocket } = await import('./reconnecting-socket.js');
    if (this.isClosed) return;
    const socket = openSocket({
      ...deps,
      onEvent: (name, data) => this.receive(toServerEvent(name as ServerEventName, data)),
      onState: (state, failure) => this.setState(state, failure),
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

  private setState(state: ConnectionState, failure?: Error): void {
    this.failure = failure;
    if (this.connection === state) return;
    this.connection = state;
    this.states.notify(state);
  }

  toError(cause = this.failure): OracleClientError {
    const message = `Cannot receive live events: ${cause?.message ?? 'the oracle rejected the connection'}`;
    return new OracleClientError('connection_lost', message, { cause });
  }
}

/** Removes the envelope that some payloads have on the wire. */
function toServerEvent(name: ServerEventName, data: unknown): ServerEvent {
  const envelope = (data ?? {}) as { readonly eventName?: unknown; readonly payload?: unknown };
  const payload = envelope.eventName === name ? envelope.payload : data;
  return { name, payload } as ServerEvent;
}
