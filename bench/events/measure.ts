import { randomUUID } from 'node:crypto';
import { io, type Socket } from 'socket.io-client';
import { quantile } from '../support/figures.ts';
import { mintTokens, type ServerProcess } from '../support/server-process.ts';
import { now, type Pulse } from './pulse.ts';

/** Clients that connect at the same time. */
const CONNECT_BATCH = 50;

export interface Measured {
  readonly name: string;
  readonly sockets: number;
  readonly delivered: number;
  readonly expected: number;
  readonly outOfOrder: number;
  /** Events of another session. */
  readonly misdelivered: number;
  readonly p50: number;
  readonly p99: number;
  /** Of the server, in percent of one core, while it sent events. */
  readonly cpuPercent: number;
  /** Memory of the server per connected client, before the first event. */
  readonly kilobytesPerSocket: number;
}

/** Connects clients, has the server send events to all sessions at once, and checks what each client received. */
export async function measure(target: Target, sockets: number, pulse: Pulse): Promise<Measured> {
  const { server, name } = target;
  // After this the server has its usual size without clients.
  await run(await connectAll(target, CONNECT_BATCH), { count: 20, gapMs: 5 });
  const idle = server.rssMegabytes();
  const listeners = await connectAll(target, sockets);
  const connected = server.rssMegabytes();
  const [cpu, start] = [server.cpuMs(), performance.now()];
  const receipts = await run(listeners, pulse);
  const cpuPercent = (100 * (server.cpuMs() - cpu)) / (performance.now() - start);
  const delays = receipts.flatMap(({ delays }) => delays);
  const sum = (count: (receipt: Receipt) => number) =>
    receipts.reduce((all, receipt) => all + count(receipt), 0);
  return {
    name,
    sockets,
    delivered: delays.length,
    expected: sockets * pulse.count,
    outOfOrder: sum(({ outOfOrder }) => outOfOrder),
    misdelivered: sum(({ misdelivered }) => misdelivered),
    p50: quantile(delays, 0.5),
    p99: quantile(delays, 0.99),
    cpuPercent,
    kilobytesPerSocket: ((connected - idle) * 1024) / sockets,
  };
}

async function connectAll(target: Target, count: number): Promise<Listener[]> {
  const listeners: Listener[] = [];
  while (listeners.length < count) {
    const batch = Math.min(CONNECT_BATCH, count - listeners.length);
    const opened = Array.from({ length: batch }, () => target.connect());
    listeners.push(...(await Promise.all(opened)));
  }
  return listeners;
}

/** What one client has received. */
interface Receipt {
  readonly delays: number[];
  outOfOrder: number;
  misdelivered: number;
}

async function run(listeners: readonly Listener[], pulse: Pulse): Promise<Receipt[]> {
  const receipts = listeners.map(listen);
  await Promise.all(listeners.map((listener) => listener.start(pulse)));
  for (const { socket } of listeners) socket.disconnect();
  return receipts;
}

function listen({ socket, sessionId }: Listener): Receipt {
  const receipt: Receipt = { delays: [], outOfOrder: 0, misdelivered: 0 };
  socket.on('router_update', (event: { from?: string; step: string; sessionId: string }) => {
    if (event.from !== 'pulse') return;
    const [n, sentAt] = event.step.split(' ').map(Number);
    if (event.sessionId !== sessionId) receipt.misdelivered += 1;
    if (n !== receipt.delays.length) receipt.outOfOrder += 1;
    receipt.delays.push(now() - (sentAt ?? 0));
  });
  return receipt;
}

/** A client in its own session. */
interface Listener {
  readonly sessionId: string;
  readonly socket: Socket;
  /** Requests the events; resolves when the client has received all. */
  start(pulse: Pulse): Promise<void>;
}

export interface Target {
  readonly name: string;
  readonly server: ServerProcess;
  /** Connects a client of a new user. */
  connect(): Promise<Listener>;
}

export function bareTarget(server: ServerProcess): Target {
  return {
    name: 'bare Socket.IO',
    server,
    connect: async () => {
      const sessionId = randomUUID();
      const socket = await open(server.url, sessionId, {});
      return {
        sessionId,
        socket,
        start: (pulse) => socket.emitWithAck('pulse', pulse),
      };
    },
  };
}

export function hostTarget(server: ServerProcess): Target {
  return {
    name: 'host',
    server,
    connect: async () => {
      const [invocation = ''] = mintTokens(1, server.did ?? '');
      const post = (path: string, body: object) => postJson(server.url + path, invocation, body);
      const { sessionId } = await post('/sessions', {});
      const socket = await open(server.url, sessionId, { invocation });
      const start = async (pulse: Pulse) => {
        await post(`/messages/${sessionId}`, { message: `use pulse ${JSON.stringify(pulse)}` });
        await ping(socket);
      };
      return { sessionId, socket, start };
    },
  };
}

/** The reply arrives after all events that were sent before it. */
function ping(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.once('pong', () => resolve());
    socket.emit('ping');
  });
}

function open(url: string, sessionId: string, auth: object): Promise<Socket> {
  const socket = io(url, {
    query: { sessionId },
    auth: { ...auth },
    transports: ['websocket'],
    forceNew: true,
    reconnection: false,
  });
  return new Promise((resolve, reject) => {
    socket.once('connected', () => resolve(socket));
    socket.once('connect_error', reject);
  });
}

async function postJson(url: string, bearer: string, body: object) {
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      authorization: `Bearer ${bearer}`,
      'x-auth-type': 'ucan',
    },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as { sessionId: string };
}
