// Runs all benchmarks in turn and writes their ratios to docs/performance.md; with names, runs only those.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { describeMachine, type Figure, formatTable, toRow } from './support/figures.ts';

const NAMES = [
  ...['auth', 'turn', 'events', 'cluster', 'gateway', 'start'],
  ...['surfaces', 'files', 'search', 'export', 'bodies', 'page'],
];
const PAGE = 'docs/performance.md';

interface Benchmark {
  readonly name: string;
  /** None if it failed; one that misses a target has figures. */
  readonly figures: readonly Figure[];
}

async function main(wanted: readonly string[]): Promise<void> {
  const unknown = wanted.filter((name) => !NAMES.includes(name));
  if (unknown.length > 0)
    throw new Error(`Unknown benchmark ${unknown.join(', ')}: choose from ${NAMES.join(', ')}`);
  const machine = describeMachine();
  const benchmarks: Benchmark[] = [];
  for (const name of wanted.length > 0 ? wanted : NAMES) benchmarks.push(await run(name));
  console.log(`\n${formatRatios(benchmarks)}`);
  const failed = benchmarks.filter(({ figures }) => figures.length === 0);
  if (failed.length > 0) throw new Error(`Failed: ${failed.map(({ name }) => name).join(', ')}`);
  if (wanted.length > 0) return;
  writeFileSync(PAGE, buildPage(benchmarks, machine));
  console.log(`\nWritten to ${PAGE}`);
}

/** Runs a benchmark in its own process, so that none affects another. */
async function run(name: string): Promise<Benchmark> {
  console.log(`\n# ${name}\n`);
  const child = fork(new URL(`./${name}.ts`, import.meta.url));
  let figures: readonly Figure[] = [];
  child.on('message', (message: { figures: readonly Figure[] }) => {
    figures = message.figures;
  });
  await once(child, 'exit');
  return { name, figures };
}

function formatRatios(benchmarks: readonly Benchmark[]): string {
  const head = ['benchmark', 'figure', 'ours', 'compared with', 'ratio', 'target'];
  const rows = benchmarks.flatMap(({ name, figures }) =>
    figures.map((figure) => [name, ...toRow(figure)]),
  );
  return formatTable([head, ...rows]);
}

function buildPage(benchmarks: readonly Benchmark[], machine: string): string {
  return `# Performance

\`npm run bench\` runs every benchmark and writes this page. Absolute figures depend on the machine: compare the
ratios, which were measured in the same minutes on the same machine.

${formatRatios(benchmarks)}

Measured on ${machine}. Servers, models and load generators share its cores.

| Benchmark | Command | Compared with |
| --- | --- | --- |
| auth | \`npm run bench:auth\` | ucanto's own validator; a route of the host that needs no token |
| turn | \`npm run bench:turn\` | a bare server that stores messages and runs in two plain tables and calls the same model by fetch, without authentication, validation or a log; and one on node:http that stores a durable turn in the tables of the host |
| events | \`npm run bench:events\` | Socket.IO alone, which sends the same events without authentication |
| cluster | \`npm run bench:cluster\` | one host instead of several; one transaction for the frames of each run, as in version 0.1 |
| gateway | \`npm run bench:gateway\` | the same function built from node:http, grpc-js and protobuf-es |
| start | \`npm run bench:start\` | a node:http server that does nothing else |
| surfaces | \`npm run bench:surfaces\` | the same turn by the host's own route |
| files | \`npm run bench:files\` | node:http, which keeps the bytes in a file |
| search | \`npm run bench:search\` | |
| export | \`npm run bench:export\` | |
| bodies | \`npm run bench:bodies\` | opening a session, on the same host: what the worst JSON bodies cost for each request that their sender is charged, and how long \`/health\` waits meanwhile |
| page | \`npm run bench:page\` | |

\`npm run bench:pairs -- <folder>\` compares the processor time of a turn with that of another checkout, in pairs of new processes.
\`npm run bench:gateway-pairs -- <folder>\` does the same for a query through the gateway.
\`npm run bench:model-client\` compares our client of OpenAI's chat completions with that of the AI SDK, in alternating slices.

\`npm run bench:fairness\` lets 200 new keys of one address stall turns, uploads, imports, exports and pushes and open sockets at a host with default limits for two
minutes, and prints what users of another address, and known users of the same one, notice; beside it, their figures while the same requests go to a server that refuses all of them.

\`npm run bench:backup\` backs up a database of 1 GB (\`-- 200\` for 200 MB) with \`sibyl backup\` while the host takes five turns a second, and prints how
long the backup takes, and how long turns take before it and meanwhile.

\`npm run bench:overload\` sends a host with default limits 600 turns a second of 3,000 users for 45 s (\`-- 300 12\` for others), each on a new
connection, and prints whether probes over new connections are answered within 2 s, every accepted turn is stored, every refusal is a 429 or 503
with \`Retry-After\` within 1 s, and the host is back to normal within 15 s. It needs a machine without other load.
${MEMORY_SECTION}`;
}

/** Measured by hand with `npm run bench:soak`, which takes too long to be part of every run. */
const MEMORY_SECTION = `
## Memory over time

\`npm run bench:soak\` sends a host 50 requests a second for 30 minutes (\`-- 2\` for two), a mix of turns as JSON and as streams,
lists and deleted sessions, and prints its memory every ten seconds and, after the warm-up, the slopes in MB per hour. \`live\` is
the heap after a full collection: only its slope shows a leak. In 30 minutes, on a machine with other load, a host answered 77,000 requests,
none of which failed; after ten minutes, \`live\` rose by 5 MB per hour and RSS by 12:

| | minute 0.2 | 1.0 | 5.0 | 29.9 |
| --- | --- | --- | --- | --- |
| resident memory (RSS), MB | 222 | 248 | 260 | 264 |
| heap that V8 holds (heapTotal), MB | 123 | 137 | 147 | 143 |
| heap in use (heapUsed), MB | 77 | 74 | 94 | 87 |
| outside of the heap (external), MB | 10 | 10 | 11 | 11 |

While V8 has enough memory it collects the young generation only and lets the old one grow, so RSS rises in the first minutes. About 64 MB of
it is program code, which is mapped from files and constant. In an hour, with 25 requests a second (\`-- 60 25\`) on a machine with much other load,
RSS rose to 254 MB within twelve minutes, and to 260 until the end, 1 MB of it in the last 20 minutes; \`live\` rose by at most 2 MB per hour and
\`external\` not at all. What rose is the memory allocator of the C library, which keeps a separate arena for each thread of Node: a second host
in the same hour, with \`MALLOC_ARENA_MAX=1\`, had 254 MB from the twelfth minute to the last. So a slope over the first minutes is not a leak. To limit the heap of a host, set \`NODE_OPTIONS=--max-old-space-size=256\` (in MB).
`;

await main(process.argv.slice(2));
