import { quantile } from '../parts/median.ts';
import { now, type Pulse } from './pulse.ts';
import type { Listener, Target } from './target.ts';

/** Clients that connect at the same time. */
const TOGETHER = 50;

export interface Measured {
  readonly name: string;
  readonly sockets: number;
  readonly delivered: number;
  readonly expected: number;
  readonly outOfOrder: number;
  readonly toStrangers: number;
  readonly p50: number;
  readonly p99: number;
  /** Of the server, in percent of one core, while it told. */
  readonly cpuPercent: number;
  /** What each connected client cost the server before anything was told. */
  readonly kilobytesPerSocket: number;
}

/** Connects clients, has every session told events at once, and looks at what each client heard. */
export async function measure(target: Target, sockets: number, pulse: Pulse): Promise<Measured> {
  const { server, name } = target;
  // Brings the server to the size it has without clients.
  await run(await connectAll(target, TOGETHER), { count: 20, gapMs: 5 });
  const idle = server.rssMegabytes();
  const listeners = await connectAll(target, sockets);
  const connected = server.rssMegabytes();
  const [cpu, start] = [server.cpuMs(), performance.now()];
  const ears = await run(listeners, pulse);
  const cpuPercent = (100 * (server.cpuMs() - cpu)) / (performance.now() - start);
  const delays = ears.flatMap((ear) => ear.delays);
  const sum = (count: (ear: Ear) => number) => ears.reduce((all, ear) => all + count(ear), 0);
  return {
    name,
    sockets,
    delivered: delays.length,
    expected: sockets * pulse.count,
    outOfOrder: sum((ear) => ear.outOfOrder),
    toStrangers: sum((ear) => ear.strange),
    p50: quantile(delays, 0.5),
    p99: quantile(delays, 0.99),
    cpuPercent,
    kilobytesPerSocket: ((connected - idle) * 1024) / sockets,
  };
}

async function connectAll(target: Target, count: number): Promise<Listener[]> {
  const listeners: Listener[] = [];
  while (listeners.length < count) {
    const batch = Math.min(TOGETHER, count - listeners.length);
    const opened = Array.from({ length: batch }, () => target.connect());
    listeners.push(...(await Promise.all(opened)));
  }
  return listeners;
}

/** What one client has heard. */
interface Ear {
  readonly delays: number[];
  outOfOrder: number;
  strange: number;
}

async function run(listeners: readonly Listener[], pulse: Pulse): Promise<Ear[]> {
  const ears = listeners.map((listener) => listen(listener));
  await Promise.all(listeners.map((listener) => listener.start(pulse)));
  for (const { socket } of listeners) socket.disconnect();
  return ears;
}

function listen({ socket, sessionId }: Listener): Ear {
  const ear: Ear = { delays: [], outOfOrder: 0, strange: 0 };
  socket.on('router_update', (event: { from?: string; step: string; sessionId: string }) => {
    if (event.from !== 'pulse') return;
    const [n, toldAt] = event.step.split(' ').map(Number);
    if (event.sessionId !== sessionId) ear.strange += 1;
    if (n !== ear.delays.length) ear.outOfOrder += 1;
    ear.delays.push(now() - (toldAt ?? 0));
  });
  return ear;
}
