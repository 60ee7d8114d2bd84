// What a query costs through the gateway, compared with the usual libraries and with a bare gRPC client.

import { bareTarget, httpTarget, type Load, type Target } from './gateway/load.ts';
import { LARGE, MEDIUM, QUERIES, type Query, SMALL } from './gateway/queries.ts';
import {
  atLeast,
  atMost,
  type Figure,
  formatTarget,
  median,
  readLoad,
  reportFigures,
} from './support/figures.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';

const ROUNDS = 5;
const MOST_SECONDS_TO_START = 1;
const USUAL = 'node:http, grpc-js, protobuf-es';
const UNCACHED = 'gateway, uncached';
const CACHED = 'gateway, cached';
const STARTING = 'from the start of the process to the first response with live descriptors';

const GOALS: readonly Goal[] = [
  { target: UNCACHED, query: SMALL.name, atLeast: 1.5 },
  { target: UNCACHED, query: MEDIUM.name, atLeast: 1.5 },
  { target: UNCACHED, query: LARGE.name, atLeast: 3 },
  ...QUERIES.map(({ name }) => ({ target: CACHED, query: name, atLeast: 5 })),
];

const SCRIPTS = {
  node: new URL('./servers/node.ts', import.meta.url),
  gateway: new URL('./servers/gateway.ts', import.meta.url),
  usual: new URL('./servers/usual-stack.ts', import.meta.url),
};

async function withProcesses<T>(use: (start: Starter) => Promise<T>): Promise<T> {
  const started: ServerProcess[] = [];
  try {
    return await use(async (name, ...args) => {
      const server = await startServer(SCRIPTS[name], { args });
      started.push(server);
      return server;
    });
  } finally {
    await Promise.all(started.map((server) => server.stop()));
  }
}

type Starter = (name: keyof typeof SCRIPTS, ...args: string[]) => Promise<ServerProcess>;

/** Runs every target in every round, so that other load on the machine affects all of them. */
async function measureAll(targets: readonly Target[], queries: readonly Query[]) {
  const series = queries.flatMap((query) =>
    targets.map((target) => ({ target, query, rounds: [] as Load[] })),
  );
  for (let round = 0; round <= ROUNDS; round++) {
    for (const { target, query, rounds } of round % 2 === 0 ? series : series.toReversed()) {
      const load = await target.run(query);
      // The first round is a warm-up.
      if (round > 0) rounds.push(load);
    }
  }
  return series.map(({ target, query, rounds }) => ({
    target: target.name,
    query: query.name,
    rounds,
  }));
}

/** Shows that the servers return about the same bytes. */
async function printSizes(servers: Readonly<Record<string, ServerProcess>>): Promise<void> {
  for (const query of QUERIES) {
    const sizes = Object.entries(servers).map(async ([name, { url }]) => {
      const response = await fetch(url + query.buildPath(0));
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
  while (!(await fetch(gateway.url + SMALL.buildPath(0))).ok);
  const seconds = (performance.now() - begun) / 1000;
  const target = atMost(MOST_SECONDS_TO_START, seconds, ' s');
  const figure = { name: STARTING, ours: `${seconds.toFixed(2)} s`, target };
  console.log(`${STARTING}: ${figure.ours} (${formatTarget(target)})`);
  return { gateway, figure };
}

/** The rounds of one target with one query. */
interface Series {
  readonly target: string;
  readonly query: string;
  readonly rounds: readonly Load[];
}

interface Goal {
  readonly target: string;
  readonly query: string;
  /** Ratio of requests per second to the target it is compared with. */
  readonly atLeast: number;
}

const line = (...cells: readonly string[]) => console.log(`| ${cells.join(' | ')} |`);

/** Prints every series, compared round by round with another target. */
function printSeries(all: readonly Series[], comparedWith: string, goals: readonly Goal[]): void {
  const head = [
    'requests',
    'per second',
    `× ${comparedWith}`,
    'target',
    'CPU per request',
    '× CPU',
  ];
  line(...head, 'load generator');
  line(...[...head, ''].map(() => '---'));
  for (const series of all) {
    const other = all.find((one) => one.target === comparedWith && one.query === series.query);
    const compare = (figure: (load: Load) => number) =>
      median(series.rounds.map((load, i) => figure(load) / figure(other?.rounds[i] ?? load)));
    const over = (figure: (load: Load) => number) => median(series.rounds.map(figure));
    const ratio = compare(({ perSecond }) => perSecond);
    line(
      `${series.query}: ${series.target}`,
      over(({ perSecond }) => perSecond).toFixed(0),
      ratio.toFixed(2),
      judgeSeries(series, ratio, goals),
      `${over(({ cpuMicros }) => cpuMicros).toFixed(0)} µs`,
      compare(({ cpuMicros }) => cpuMicros).toFixed(2),
      `${Math.round(over(({ ownShare }) => ownShare) * 100)} % of a core`,
    );
  }
}

function judgeSeries({ target, query }: Series, ratio: number, goals: readonly Goal[]): string {
  const goal = goals.find((one) => one.target === target && one.query === query);
  if (!goal) return '';
  return `${ratio >= goal.atLeast ? 'met' : 'MISSED'}: ≥ ${goal.atLeast}`;
}

/** Requests per second and processor time of each target that has a goal. */
function toFigures(all: readonly Series[], comparedWith: string, goals: readonly Goal[]): Figure[] {
  const findRounds = (target: string, query: string) =>
    all.find((one) => one.target === target && one.query === query)?.rounds ?? [];
  return goals.flatMap(({ target, query, atLeast: least }) => {
    const [own, other] = [findRounds(target, query), findRounds(comparedWith, query)];
    const compare = (unit: string, read: (load: Load) => number) => ({
      ours: `${median(own.map(read)).toFixed(0)}${unit}`,
      beside: `${comparedWith}: ${median(other.map(read)).toFixed(0)}${unit}`,
      ratio: median(own.map((load, i) => read(load) / read(other[i] ?? load))),
    });
    const rate = compare('/s', ({ perSecond }) => perSecond);
    const cpu = compare(' µs', ({ cpuMicros }) => cpuMicros);
    return [
      { name: `${query}: ${target}`, ...rate, target: atLeast(least, rate.ratio) },
      { name: `${query}: ${target}, processor`, ...cpu },
    ];
  });
}

console.log(`Load of the machine before: ${readLoad()}`);
const figures = await withProcesses(async (start) => {
  const node = await start('node');
  const { gateway, figure } = await startGateway(start, node);
  const usual = await start('usual', node.url);
  await printSizes({ gateway, 'usual parts': usual });
  const targets = [
    httpTarget(USUAL, usual, 'new'),
    httpTarget(UNCACHED, gateway, 'new'),
    httpTarget(CACHED, gateway, 'same'),
    bareTarget('grpc-js alone', node),
  ];
  console.log('');
  const all = await measureAll(targets, QUERIES);
  printSeries(all, USUAL, GOALS);
  return [figure, ...toFigures(all, USUAL, GOALS)];
});
console.log(`\nLoad of the machine after: ${readLoad()}`);
await reportFigures(figures);
process.exit();
