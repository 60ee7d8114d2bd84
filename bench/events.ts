// What it costs to send live events to sessions: the host compared with bare Socket.IO.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bareTarget, hostTarget, type Measured, measure } from './events/measure.ts';
import { type Figure, readLoad, reportFigures } from './support/figures.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';

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
