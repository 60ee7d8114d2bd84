import type { ClientEventName, ServerEventName } from '@sibyl/protocol';
import { CallBox } from '../browser-tools/tool-calls.js';
import { OracleClientError } from '../errors.js';
import { Listeners } from '../listeners.js';
import type { OpenSocket, SocketOptions } from './reconnecting-socket.js';
import type {
  ConnectionState,
  ServerEvent,
  ServerEvents,
  SessionEvents,
} from './session-events.js';

interface Shared {
  readonly socket: SessionSocket;
  holders: number;
}

/** The sockets of a client: one for each session that somebody listens to. */
export class SocketHub {
  readonly #parts: Omit<SocketParts, 'sessionId'>;
  readonly #sockets = new Map<string, Shared>();

  constructor(parts: Omit<SocketParts, 'sessionId'>) {
    this.#parts = parts;
  }

  open(sessionId: string): SessionEvents {
    return this.openWithCalls(sessionId).events;
  }

  /** The events of a session, and the calls among them. */
  openWithCalls(sessionId: string): { readonly events: SessionEvents; readonly calls: CallBox } {
    const shared = this.#take(sessionId);
    const { socket } = shared;
    const events = eventsOf(sessionId, socket, () => this.#leave(sessionId, shared));
    return { events, calls: socket.calls };
  }

  close(): void {
    for (const { socket } of this.#sockets.values()) socket.close();
    this.#sockets.clear();
  }

  #take(sessionId: string): Shared {
    const known = this.#sockets.get(sessionId);
    // A socket the host refused for good is no use to who comes next.
    if (known && known.socket.state !== 'disconnected') {
      known.holders += 1;
      return known;
    }
    const shared = { socket: new SessionSocket({ ...this.#parts, sessionId }), holders: 1 };
    this.#sockets.set(sessionId, shared);
    return shared;
  }

  #leave(sessionId: string, shared: Shared): void {
    shared.holders -= 1;
    if (shared.holders > 0) return;
    shared.socket.close();
    if (this.#sockets.get(sessionId) === shared) this.#sockets.delete(sessionId);
  }
}

/** What one holder sees of a socket; closing it ends all that this holder asked for. */
function eventsOf(sessionId: string, socket: SessionSocket, leave: () => void): SessionEvents {
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
    catalogue: () => ask('list-events', 'available-events'),
    close: () => {
      if (!isOpen) return;
      isOpen = false;
      for (const end of [...endings]) end();
      leave();
    },
  };
}

type SocketParts = Pick<SocketOptions, 'url' | 'sessionId' | 'token'>;

/** The one socket of a session; its code is loaded when it is made. */
class SessionSocket {
  readonly events = new Listeners<ServerEvent>();
  readonly calls = new CallBox();
  readonly states = new Listeners<ConnectionState>();
  #state: ConnectionState = 'connecting';
  #refusal: Error | undefined;
  #isClosed = false;
  #socket: OpenSocket | undefined;
  #unsent: { readonly name: ClientEventName; readonly payload: unknown }[] = [];

  constructor(parts: SocketParts) {
    this.#open(parts).catch((cause) => this.#enter('disconnected', cause));
  }

  get state(): ConnectionState {
    return this.#state;
  }

  emit(name: ClientEventName, payload: unknown): void {
    if (this.#socket) this.#socket.emit(name, payload);
    else this.#unsent.push({ name, payload });
  }

  ready(): Promise<void> {
    return new Promise((resolve, reject) => {
      const settle = () => {
        if (this.#state === 'connecting') return;
        stop();
        if (this.#state === 'connected') resolve();
        else reject(this.#refused());
      };
      const stop = this.states.add(settle);
      settle();
    });
  }

  close(): void {
    this.#isClosed = true;
    this.#socket?.close();
    this.#enter('disconnected', new Error('The connection was closed here'));
  }

  async #open(parts: SocketParts): Promise<void> {
    const { openSocket } = await import('./reconnecting-socket.js');
    if (this.#isClosed) return;
    const socket = openSocket({
      ...parts,
      onEvent: (name, data) => this.#receive(eventOf(name as ServerEventName, data)),
      onState: (state, refusal) => this.#enter(state, refusal),
    });
    for (const { name, payload } of this.#unsent) socket.emit(name, payload);
    this.#unsent = [];
    this.#socket = socket;
  }

  #receive(event: ServerEvent): void {
    const { name, payload } = event;
    if (name === 'browser_tool_call') this.calls.put({ kind: 'tool', call: payload });
    if (name === 'action_call') this.calls.put({ kind: 'action', call: payload });
    this.events.tell(event);
  }

  #enter(state: ConnectionState, refusal?: Error): void {
    this.#refusal = refusal;
    if (this.#state === state) return;
    this.#state = state;
    this.states.tell(state);
  }

  #refused(): OracleClientError {
    const cause = this.#refusal;
    const message = `No events: ${cause?.message ?? 'the host refuses the connection'}`;
    return new OracleClientError('connection_lost', message, { cause });
  }
}

/** Some payloads travel in an envelope that repeats the name (contract B5). */
function eventOf(name: ServerEventName, data: unknown): ServerEvent {
  const envelope = (data ?? {}) as { readonly eventName?: unknown; readonly payload?: unknown };
  const payload = envelope.eventName === name ? envelope.payload : data;
  return { name, payload } as ServerEvent;
}
