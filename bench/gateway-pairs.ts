// Compares the processor time of a query through the gateway with that of another checkout, which must be built:
//   node bench/gateway-pairs.ts <folder of the other checkout> [pairs]
// Both gateways run all the time in front of the same node and take turns; the first pair is a warm-up. The median of the
// pairs' ratios is hardly affected by other load on the machine.
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { httpTarget, type Target } from './gateway/load.ts';
import { LARGE, MEDIUM, type Query, SMALL } from './gateway/queries.ts';
import { formatTable, median, quantile, readLoad } from './support/figures.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';

const PAIRS = 6;

const [folder, pairs = String(PAIRS)] = process.argv.slice(2);
if (!folder || !(Number(pairs) > 0)) {
  console.error('Usage: node bench/gateway-pairs.ts <folder of the other checkout> [pairs]');
  process.exit(2);
}
const checkouts = { ours: resolve(import.meta.dirname, '..'), theirs: resolve(folder) };
type Name = keyof typeof checkouts;

/** One kind of request to both gateways, with the microseconds per request of each pair. */
interface Series {
  readonly name: string;
  readonly query: Query;
  readonly targets: Readonly<Record<Name, Target>>;
  readonly micros: Readonly<Record<Name, number[]>>;
}

const KINDS = [
  { query: SMALL, requests: 'new' },
  { query: MEDIUM, requests: 'new' },
  { query: LARGE, requests: 'new' },
  { query: SMALL, requests: 'same' },
  { query: MEDIUM, requests: 'same' },
] as const;

console.log(`Load of the machine before: ${readLoad()}`);
const started: ServerProcess[] = [];
try {
  const all = await startAll();
  for (let pair = 0; pair <= Number(pairs); pair++)
    for (const series of all) await measurePair(series, pair);
  printRatios(all);
} finally {
  await Promise.all(started.map((server) => server.stop()));
}
console.log(`Load of the machine after: ${readLoad()}`);
process.exit();

async function start(script: URL, ...args: string[]): Promise<ServerProcess> {
  const server = await startServer(script, { args });
  started.push(server);
  return server;
}

async function startAll(): Promise<Series[]> {
  const node = await start(new URL('./servers/node.ts', import.meta.url));
  const startGateway = (name: Name) =>
    start(pathToFileURL(join(checkouts[name], 'bench/servers/gateway.ts')), node.url);
  const gateways = { ours: await startGateway('ours'), theirs: await startGateway('theirs') };
  return KINDS.map(({ query, requests }) => ({
    name: `${query.name}, ${requests === 'new' ? 'uncached' : 'cached'}`,
    query,
    targets: {
      ours: httpTarget('ours', gateways.ours, requests),
      theirs: httpTarget('theirs', gateways.theirs, requests),
    },
    micros: { ours: [], theirs: [] },
  }));
}

async function measurePair({ name, query, targets, micros }: Series, pair: number): Promise<void> {
  const order: readonly Name[] = pair % 2 === 0 ? ['ours', 'theirs'] : ['theirs', 'ours'];
  const measured = { ours: 0, theirs: 0 };
  for (const who of order) measured[who] = (await targets[who].run(query)).cpuMicros;
  if (pair === 0) return;
  micros.ours.push(measured.ours);
  micros.theirs.push(measured.theirs);
  const ratio = (measured.ours / measured.theirs).toFixed(3);
  const figures = [measured.ours, measured.theirs].map((each) => each.toFixed(1)).join(' / ');
  console.log(`Pair ${pair}, ${order[0]} first, ${name}: ${figures} µs per request, ${ratio}`);
}

function printRatios(all: readonly Series[]): void {
  const head = ['processor time per request', 'ours', 'theirs', 'median ratio', 'quartiles'];
  const rows = all.map(({ name, micros: { ours, theirs } }) => {
    const ratios = ours.map((each, i) => each / (theirs[i] ?? each));
    const quartiles = [0.25, 0.75].map((share) => quantile(ratios, share).toFixed(3));
    const medians = [ours, theirs].map((each) => `${median(each).toFixed(1)} µs`);
    return [name, ...medians, median(ratios).toFixed(3), quartiles.join(' and ')];
  });
  console.log(`\n${formatTable([head, ...rows])}\n`);
}
