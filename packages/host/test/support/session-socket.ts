import { io, type ManagerOptions, type Socket, type SocketOptions } from 'socket.io-client';
import { afterEach } from 'vitest';
import type { TestUser } from './user.js';

export interface ReceivedEvent {
  readonly name: string;
  // biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
  readonly data: any;
}

type Options = Partial<ManagerOptions & SocketOptions>;

/** A client of the events of a session. */
export class SessionSocket {
  /** All received events. */
  readonly received: ReceivedEvent[] = [];
  private readonly waiting = new Set<() => void>();

  constructor(readonly socket: Socket) {
    socket.onAny((name: string, data: unknown) => this.receive({ name, data }));
    for (const name of ['connect', 'disconnect', 'connect_error'] as const)
      socket.on(name, (detail?: unknown) => this.receive({ name: `(${name})`, data: detail }));
  }

  /** The payloads of all received events with a name. */
  all(name: string): unknown[] {
    return this.received.filter((event) => event.name === name).map(({ data }) => data);
  }

  /** Waits for an event, or finds it among the received ones. */
  async until(name: string, matches: (data: ReceivedEvent['data']) => boolean = () => true) {
    for (;;) {
      const found = this.received.find((event) => event.name === name && matches(event.data));
      if (found) return found.data;
      await new Promise<void>((resolve) => this.waiting.add(resolve));
    }
  }

  /** Sends an event, and waits for the answer. */
  async ask(question: string, answer: string): Promise<ReceivedEvent['data']> {
    const seen = this.all(answer).length;
    this.socket.emit(question);
    for (;;) {
      const answers = this.all(answer);
      if (answers.length > seen) return answers.at(-1);
      await new Promise<void>((resolve) => this.waiting.add(resolve));
    }
  }

  /** Loses its connection, as a client that will reconnect. */
  dropNetwork(): void {
    this.socket.io.engine.close();
  }

  private receive(event: ReceivedEvent): void {
    this.received.push(event);
    const waiting = [...this.waiting];
    this.waiting.clear();
    for (const wake of waiting) wake();
  }
}

const open = new Set<Socket>();

afterEach(() => {
  for (const socket of open) socket.disconnect();
  open.clear();
});

/** Starts to connect; the socket is closed after the test. */
export function openSocket(url: string, options: Options): SessionSocket {
  const socket = io(url, { transports: ['websocket'], forceNew: true, ...options });
  open.add(socket);
  return new SessionSocket(socket);
}

/** Connects to a session and waits for `connected`. */
export async function joinSession(
  user: TestUser,
  sessionId: string,
  options: Options = {},
): Promise<SessionSocket> {
  const auth = { invocation: user.mint() };
  const socket = openSocket(user.host.url, { query: { sessionId }, auth, ...options });
  await socket.until('connected');
  return socket;
}

/** Opens a socket that the host must reject; returns the `connect_error`. */
export async function openRejectedSocket(
  url: string,
  options: Options,
): Promise<ReceivedEvent['data']> {
  const socket = openSocket(url, { reconnection: false, ...options });
  const error = await socket.until('(connect_error)');
  if (socket.received.some(({ name }) => name === '(connect)'))
    throw new Error('The host accepted the socket');
  return error;
}
