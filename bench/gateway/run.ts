// What a query costs through the gateway, beside what the usual parts make of the same job and a bare gRPC client.
import { loadavg } from 'node:os';
import { atMost, type Figure, tell, verdict } from '../parts/figure.ts';
import { type ServerProcess, startServer } from '../parts/server-process.ts';
import { figuresOf } from './figures.ts';
import { bareTarget, httpTarget, type Load, type Target } from './load/load.ts';
import { LARGE, MEDIUM, QUERIES, type Query, SMALL } from './queries.ts';
import { type Goal, printSeries } from './report.ts';

const ROUNDS = 5;
const MOST_SECONDS_TO_START = 1;
const USUAL = 'node:http, grpc-js, protobuf-es';
const ASKED = 'gateway, asking the node';
const CACHED = 'gateway, from its cache';
const STARTING = 'from the start of the process to an answer by live descriptors';

const GOALS: readonly Goal[] = [
  { target: ASKED, query: SMALL.name, atLeast: 1.5 },
  { target: ASKED, query: MEDIUM.name, atLeast: 1.5 },
  { target: ASKED, query: LARGE.name, atLeast: 3 },
  ...QUERIES.map(({ name }) => ({ target: CACHED, query: name, atLeast: 5 })),
];

const SCRIPTS = {
  node: new URL('./servers/node.ts', import.meta.url),
  gateway: new URL('./servers/gateway.ts', import.meta.url),
  usual: new URL('./servers/usual-stack.ts', import.meta.url),
};

async function inProcesses<T>(play: (start: Starter) => Promise<T>): Promise<T> {
  const started: ServerProcess[] = [];
  try {
    return await play(async (name, ...args) => {
      const server = await startServer(SCRIPTS[name], { args });
      started.push(server);
      return server;
    });
  } finally {
    await Promise.all(started.map((server) => server.stop()));
  }
}

type Starter = (name: keyof typeof SCRIPTS, ...args: string[]) => Promise<ServerProcess>;

/** Every target in every round, so that whatever else the machine does hits all alike. */
async function sideBySide(targets: readonly Target[], queries: readonly Query[]) {
  const series = queries.flatMap((query) =>
    targets.map((target) => ({ target, query, rounds: [] as Load[] })),
  );
  for (let round = 0; round <= ROUNDS; round++) {
    for (const { target, query, rounds } of round % 2 === 0 ? series : series.toReversed()) {
      const load = await target.run(query);
      // The first round only warms up the machine.
      if (round > 0) rounds.push(load);
    }
  }
  return series.map(({ target, query, rounds }) => ({
    target: target.name,
    query: query.name,
    rounds,
  }));
}

/** Different servers may print a reply differently, but not something else entirely. */
async function printSizes(servers: Readonly<Record<string, ServerProcess>>): Promise<void> {
  for (const query of QUERIES) {
    const sizes = Object.entries(servers).map(async ([name, { url }]) => {
      const response = await fetch(url + query.pathOf(0));
      if (!response.ok) throw new Error(`${name}: ${response.status} ${await response.text()}`);
      return `${name} ${(await response.arrayBuffer()).byteLength} B`;
    });
    console.log(`Reply of ${query.name}: ${(await Promise.all(sizes)).join(', ')}`);
  }
}

async function startGateway(
  start: Starter,
  node: ServerProcess,
): Promise<{ readonly gateway: ServerProcess; readonly figure: Figure }> {
  const begun = performance.now();
  const gateway = await start('gateway', node.url);
  while (!(await fetch(gateway.url + SMALL.pathOf(0))).ok);
  const seconds = (performance.now() - begun) / 1000;
  const target = atMost(MOST_SECONDS_TO_START, seconds, ' s');
  const figure = { name: STARTING, ours: `${seconds.toFixed(2)} s`, target };
  console.log(`${STARTING}: ${figure.ours} (${verdict(target)})`);
  return { gateway, figure };
}

const loadNow = () => loadavg()[0]?.toFixed(1);

console.log(`Load of the machine before: ${loadNow()}`);
const figures = await inProcesses(async (start) => {
  const node = await start('node');
  const { gateway, figure } = await startGateway(start, node);
  const usual = await start('usual', node.url);
  await printSizes({ gateway, 'usual parts': usual });
  const targets = [
    httpTarget(USUAL, usual, 'new'),
    httpTarget(ASKED, gateway, 'new'),
    httpTarget(CACHED, gateway, 'same'),
    bareTarget('grpc-js alone', node),
  ];
  console.log('');
  const all = await sideBySide(targets, QUERIES);
  printSeries(all, USUAL, GOALS);
  return [figure, ...figuresOf(all, USUAL, GOALS)];
});
console.log(`\nLoad of the machine after: ${loadNow()}`);
await tell(figures);
process.exit();
