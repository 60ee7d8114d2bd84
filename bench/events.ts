// What it costs to send live events to sessions: the host compared with bare Socket.IO.

import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { io, type Socket } from 'socket.io-client';
import { now, type Pulse } from './events/pulse.ts';
import { type Figure, quantile, readLoad, reportFigures } from './support/figures.ts';
import { mintTokens, type ServerProcess, startServer } from './support/server-process.ts';

/** Clients that connect at the same time. */
const CONNECT_BATCH = 50;

interface Measured {
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
async function measure(target: Target, sockets: number, pulse: Pulse): Promise<Measured> {
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

interface Target {
  readonly name: string;
  readonly server: ServerProcess;
  /** Connects a client of a new user. */
  connect(): Promise<Listener>;
}

function bareTarget(server: ServerProcess): Target {
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

function hostTarget(server: ServerProcess): Target {
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

const SOCKETS = 1000;
/** Twenty a second for ten seconds. */
const PULSE = { count: 200, gapMs: 50 };
const MANY = '100000000';

const SCRIPTS = {
  bare: new URL('./servers/bare-socket-io.ts', import.meta.url),
  host: new URL('./servers/host.ts', import.meta.url),
};

async function measureBoth(): Promise<readonly [Measured, Measured]> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-bench-'));
  const env = {
    PORT: '0',
    DATA_DIR: dataDir,
    MODEL: 'offline',
    LOG_LEVEL: 'warn',
    NODE_ENV: 'production',
    RATE_LIMIT_PER_MINUTE: MANY,
    RATE_LIMIT_ANONYMOUS_PER_MINUTE: MANY,
  };
  try {
    const bare = await using(await startServer(SCRIPTS.bare), (server) =>
      measure(bareTarget(server), SOCKETS, PULSE),
    );
    const host = await using(await startServer(SCRIPTS.host, { args: ['pulse'], env }), (server) =>
      measure(hostTarget(server), SOCKETS, PULSE),
    );
    return [bare, host];
  } finally {
    rmSync(dataDir, { recursive: true, force: true });
  }
}

async function using<T>(server: ServerProcess, use: (server: ServerProcess) => Promise<T>) {
  try {
    return await use(server);
  } finally {
    await server.stop();
  }
}

function print(all: readonly Measured[]): void {
  const { count, gapMs } = PULSE;
  const load = `${SOCKETS} sockets, ${1000 / gapMs} events/s each for ${(count * gapMs) / 1000} s`;
  const figures = 'delivered | out of order | misdelivered | p50 ms | p99 ms | CPU % | kB/socket';
  console.log(`| ${load} | ${figures} |`);
  console.log('|---|---|---|---|---|---|---|---|');
  for (const m of all) {
    const cells = [
      m.name,
      `${m.delivered} of ${m.expected}`,
      m.outOfOrder,
      m.misdelivered,
      m.p50.toFixed(1),
      m.p99.toFixed(1),
      m.cpuPercent.toFixed(0),
      m.kilobytesPerSocket.toFixed(0),
    ];
    console.log(`| ${cells.join(' | ')} |`);
  }
}

const isComplete = ({ delivered, expected, outOfOrder, misdelivered }: Measured) =>
  delivered === expected && outOfOrder === 0 && misdelivered === 0;

function toFigures([bare, host]: readonly [Measured, Measured]): Figure[] {
  const compared = (name: string, unit: string, read: (measured: Measured) => number) => ({
    name,
    ours: `${read(host).toFixed(0)} ${unit}`,
    beside: `${bare.name}: ${read(bare).toFixed(0)} ${unit}`,
    ratio: read(host) / read(bare),
  });
  const text = 'all in order, none misdelivered';
  return [
    {
      ...compared('events delivered', 'events', ({ delivered }) => delivered),
      target: { isMet: isComplete(host), text },
    },
    compared('from sending to receiving, p50', 'ms', ({ p50 }) => p50),
    compared('from sending to receiving, p99', 'ms', ({ p99 }) => p99),
    compared('processor while sending', '% of a core', ({ cpuPercent }) => cpuPercent),
    compared('memory per socket', 'kB', ({ kilobytesPerSocket }) => kilobytesPerSocket),
  ];
}

console.log(`Load of the machine before: ${readLoad()}\n`);
const measured = await measureBoth();
print(measured);
console.log(`\nLoad of the machine after: ${readLoad()}`);
if (!measured.every(isComplete)) {
  console.log('Events were lost, out of order or misdelivered.');
  process.exitCode = 1;
}
await reportFigures(toFigures(measured));
