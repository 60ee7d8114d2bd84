import { io, type ManagerOptions, type Socket, type SocketOptions } from 'socket.io-client';
import { afterEach } from 'vitest';
import type { TestUser } from './user.js';

export interface HeardEvent {
  readonly name: string;
  // biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
  readonly data: any;
}

type Options = Partial<ManagerOptions & SocketOptions>;

/** A client of a session's events, as any program would write one. */
export class SessionSocket {
  /** Every event so far. */
  readonly heard: HeardEvent[] = [];
  private readonly waiting = new Set<() => void>();

  constructor(readonly socket: Socket) {
    socket.onAny((name: string, data: unknown) => this.hear({ name, data }));
    for (const name of ['connect', 'disconnect', 'connect_error'] as const)
      socket.on(name, (detail?: unknown) => this.hear({ name: `(${name})`, data: detail }));
  }

  /** What was heard under a name. */
  all(name: string): unknown[] {
    return this.heard.filter((event) => event.name === name).map(({ data }) => data);
  }

  /** Waits for an event, or finds it among those that have come. */
  async until(name: string, matches: (data: HeardEvent['data']) => boolean = () => true) {
    for (;;) {
      const found = this.heard.find((event) => event.name === name && matches(event.data));
      if (found) return found.data;
      await new Promise<void>((resolve) => this.waiting.add(resolve));
    }
  }

  /** Asks, and waits for the answer. */
  async ask(question: string, answer: string): Promise<HeardEvent['data']> {
    const seen = this.all(answer).length;
    this.socket.emit(question);
    for (;;) {
      const answers = this.all(answer);
      if (answers.length > seen) return answers.at(-1);
      await new Promise<void>((resolve) => this.waiting.add(resolve));
    }
  }

  /** Loses its network, as a client does that will come back. */
  dropNetwork(): void {
    this.socket.io.engine.close();
  }

  private hear(event: HeardEvent): void {
    this.heard.push(event);
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

/** Starts to connect, with whatever is given; it ends with the test. */
export function openSocket(url: string, options: Options): SessionSocket {
  const socket = io(url, { transports: ['websocket'], forceNew: true, ...options });
  open.add(socket);
  return new SessionSocket(socket);
}

/** Connects to a session and waits until the host has let it in. */
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

/** How a host turns a socket away. */
export async function refusalOf(url: string, options: Options): Promise<HeardEvent['data']> {
  const socket = openSocket(url, { reconnection: false, ...options });
  const refusal = await socket.until('(connect_error)');
  if (socket.heard.some(({ name }) => name === '(connect)')) throw new Error('it was let in');
  return refusal;
}
