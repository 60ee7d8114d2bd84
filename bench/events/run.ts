// What it costs to tell sessions live: the host beside bare Socket.IO, in one run.
import { mkdtempSync, rmSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Figure, tell } from '../parts/figure.ts';
import { type ServerProcess, startServer } from '../parts/server-process.ts';
import { type Measured, measure } from './measure.ts';
import { bareTarget, hostTarget } from './target.ts';

const SOCKETS = 1000;
/** Twenty a second for ten seconds. */
const PULSE = { count: 200, gapMs: 50 };
const MANY = '100000000';

const scriptOf = (name: string) => new URL(`./servers/${name}.ts`, import.meta.url);

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
    const bare = await using(await startServer(scriptOf('bare')), (server) =>
      measure(bareTarget(server), SOCKETS, PULSE),
    );
    const host = await using(await startServer(scriptOf('host'), { env }), (server) =>
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
  const figures = 'delivered | out of order | to strangers | p50 ms | p99 ms | CPU % | kB/socket';
  console.log(`| ${load} | ${figures} |`);
  console.log('|---|---|---|---|---|---|---|---|');
  for (const m of all) {
    const cells = [
      m.name,
      `${m.delivered} of ${m.expected}`,
      m.outOfOrder,
      m.toStrangers,
      m.p50.toFixed(1),
      m.p99.toFixed(1),
      m.cpuPercent.toFixed(0),
      m.kilobytesPerSocket.toFixed(0),
    ];
    console.log(`| ${cells.join(' | ')} |`);
  }
}

const isRight = ({ delivered, expected, outOfOrder, toStrangers }: Measured) =>
  delivered === expected && outOfOrder === 0 && toStrangers === 0;

function figuresOf([bare, host]: readonly [Measured, Measured]): Figure[] {
  const compared = (name: string, unit: string, of: (measured: Measured) => number) => ({
    name,
    ours: `${of(host).toFixed(0)} ${unit}`,
    beside: `${bare.name}: ${of(bare).toFixed(0)} ${unit}`,
    ratio: of(host) / of(bare),
  });
  const says = 'all in order, none to strangers';
  return [
    {
      ...compared('events delivered', 'events', ({ delivered }) => delivered),
      target: { isMet: isRight(host), says },
    },
    compared('from telling to hearing, p50', 'ms', ({ p50 }) => p50),
    compared('from telling to hearing, p99', 'ms', ({ p99 }) => p99),
    compared('processor while telling', '% of a core', ({ cpuPercent }) => cpuPercent),
    compared('memory of a socket', 'kB', ({ kilobytesPerSocket }) => kilobytesPerSocket),
  ];
}

const loadNow = () => loadavg()[0]?.toFixed(1);

console.log(`Load of the machine before: ${loadNow()}\n`);
const measured = await measureBoth();
print(measured);
console.log(`\nLoad of the machine after: ${loadNow()}`);
if (!measured.every(isRight)) {
  console.log('Something was lost, out of order or told to a stranger.');
  process.exitCode = 1;
}
await tell(figuresOf(measured));
