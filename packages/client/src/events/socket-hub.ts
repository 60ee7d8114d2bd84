import type { ClientEventName, ServerEventName } from '@sibyl/protocol';
import type { CallBox } from '../calls/call-box.js';
import type { ServerEvent, ServerEvents, SessionEvents } from './session-events.js';
import { SessionSocket, type SocketParts } from './session-socket.js';

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
