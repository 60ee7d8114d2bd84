// Changes the code in small ways, one at a time, and runs the tests that reach the change: a mutant that no test notices is
// a rule that no test checks. Prints those mutants and the score of each folder. Arguments: folders or files; by default all.
// --sample=400 tries that many of each, spread over its files, which estimates the score in minutes rather than hours.
// --only=QueryCondition,SqlCondition tries those that remove a condition from a query, such as the owner of a row.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  appendFileSync,
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, matchesGlob, relative, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { installLocked } from './third-party.ts';

const OUTPUT = 'test-output/mutation';
const MINIMUM_SCORE = 85;
/** Mutants of one process; it collects the tests of all of them before it runs the first. */
const BATCH = 60;
/** A process that reports nothing for so long is stuck in a mutant. */
const STUCK_MS = 180_000;

interface Target {
  readonly folder: string;
  readonly tests: readonly string[];
  /** Queries are built by the first test that uses them, so that others do not seem to reach their code. */
  readonly runsWholeFiles?: boolean;
}

/** The code that decides who may do what, how often and at which price, and its tests that need one process and SQLite. */
const TARGETS: readonly Target[] = [
  { folder: 'plugins/credits/src', tests: ['plugins/credits/src/*.test.ts'] },
  {
    folder: 'packages/ucan/src',
    tests: [
      'packages/ucan/src/**/*.test.ts',
      'packages/ucan/test/{golden,ucanto-*,hostile-*}.test.ts',
    ],
  },
  {
    folder: 'packages/host/src/auth',
    tests: [
      'packages/host/src/auth/*.test.ts',
      'packages/host/test/{access-keys,authentication,callers,delegation*,limits,rules}.test.ts',
      'packages/host/test/{operators,schedules}.test.ts',
    ],
  },
  {
    folder: 'packages/host/src/turns',
    tests: [
      'packages/host/src/turns/**/*.test.ts',
      'packages/host/test/{approvals,queue,turn-limits,turn-errors,running-turns}.test.ts',
      'packages/host/test/{messages,streams,history,branches,feedback,usage,gates}.test.ts',
      'packages/host/test/{settling,model-budget,middlewares,middleware-failures}.test.ts',
      'packages/host/test/{capabilities,request-tools,sub-agents,session-limit}.test.ts',
      'packages/host/test/{plugin-contexts,plugin-services,surface-threads}.test.ts',
    ],
  },
  {
    folder: 'packages/host/src/store',
    tests: [
      'packages/host/src/store/**/*.test.ts',
      'packages/host/test/{access-keys,approvals,branches,delegation-list,feedback,files}.test.ts',
      'packages/host/test/{own-data,plugin-services,queue,rules,sessions,surface-threads}.test.ts',
    ],
    runsWholeFiles: true,
  },
];

/** Released migrations never change; PostgreSQL is not part of these runs. */
const NOT_MUTATED = [
  '**/*.test.ts',
  '**/store/migrations.ts',
  '**/store/schema/**',
  '**/postgres/**',
];

/** They need PostgreSQL or other processes, or measure time and memory. */
const NOT_RUN = [
  '**/postgres/**',
  '**/{shared-jobs,store,open-database,copy-database,processes,query-plan,verifier-cost}.test.ts',
];

interface Mutant {
  readonly id: string;
  readonly fileName: string;
  readonly mutatorName: string;
  readonly replacement: string;
  readonly location: { readonly start: Position; readonly end: Position };
  /** Why it is not counted. */
  readonly statusReason?: string;
}

interface Position {
  readonly line: number;
  readonly column: number;
}

/** Which mutants the tests reach, by id. */
interface Reach {
  readonly loaded: Readonly<Record<string, number>>;
  readonly hooks: Readonly<Record<string, readonly string[]>>;
  readonly failed: Readonly<Record<string, readonly string[]>>;
  /** By JSON of file and name. */
  readonly perTest: Readonly<Record<string, Readonly<Record<string, number>>>>;
}

type Status = 'killed' | 'survived' | 'unreached' | 'stuck';

async function main(): Promise<number> {
  const { values, positionals: paths } = parseArgs({
    options: { sample: { type: 'string' }, only: { type: 'string' } },
    allowPositionals: true,
  });
  const sample = Number(values.sample ?? Number.POSITIVE_INFINITY);
  if (!(sample >= 1)) {
    console.log('--sample must be a number of mutants, such as --sample=400');
    return 1;
  }
  const unknown = paths.find((path) => !existsSync(path) || !findTarget(path));
  if (unknown) {
    const folders = TARGETS.map(({ folder }) => folder).join(', ');
    console.log(`${unknown} is not in one of the folders with mutation tests: ${folders}`);
    return 1;
  }
  const choice = { sample, only: values.only?.split(',') };
  installLocked('tools/mutation');
  let code = 0;
  for (const path of paths.length > 0 ? paths : TARGETS.map(({ folder }) => folder))
    code = Math.max(code, await testMutants(path.replace(/\/$/, ''), choice));
  return code;
}

const findTarget = (path: string) =>
  TARGETS.find(({ folder }) => `${path}/`.startsWith(`${folder}/`));

async function testMutants(path: string, choice: Choice): Promise<number> {
  const target = findTarget(path);
  if (!target) return 1;
  const folder = `${OUTPUT}/${path.replaceAll('/', '-')}`;
  mkdirSync(folder, { recursive: true });
  const { mutants, sources } = await listMutants(path);
  const wanted = mutants.filter(({ mutatorName }) => choice.only?.includes(mutatorName) ?? true);
  if (wanted.length === 0) {
    const names = [...new Set(mutants.map(({ mutatorName }) => mutatorName))].join(', ');
    console.log(`${path} has no such mutants; those of --only can be: ${names}`);
    return 1;
  }
  const tried = pickSample(wanted, choice.sample);
  const sampled = tried.length < wanted.length ? wanted.length : undefined;
  const plan = {
    mutants,
    tried,
    sampled,
    sources,
    folder,
    tests: listTests(target, path),
  };
  const reach = await recordReach(plan);
  const results = readResults(plan);
  const pending = tried.filter(({ id }) => results.get(id) !== 'killed');
  const planned = pending.flatMap((mutant) => planMutant(mutant, { plan, reach, target }));
  await runBatches(plan, planned);
  return print(path, plan);
}

interface Choice {
  /** At most so many. */
  readonly sample: number;
  /** Names of mutators. */
  readonly only: readonly string[] | undefined;
}

/** The same mutants in every run, as long as their files do not change. */
function pickSample(mutants: readonly Mutant[], size: number): readonly Mutant[] {
  if (size >= mutants.length) return mutants;
  const keyed = mutants.map((mutant) => ({ mutant, key: toKey(mutant) }));
  const picked = keyed.toSorted((a, b) => (a.key < b.key ? -1 : 1)).slice(0, size);
  const ids = new Set(picked.map(({ mutant }) => mutant.id));
  // In the order of their files, so that a batch needs few tests.
  return mutants.filter(({ id }) => ids.has(id));
}

/** More processes than cores, since tests often wait. */
async function runBatches(plan: Plan, planned: readonly PlannedMutant[]): Promise<void> {
  let next = 0;
  const work = async (_: unknown, worker: number) => {
    while (next < planned.length) {
      const batch = planned.slice(next, next + BATCH);
      next += BATCH;
      await runBatch(plan, batch, worker);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() + 2 }, work));
}

/** The tests of a folder; for one file those beside it, if there are any. */
function listTests(target: Target, path: string): string[] {
  const found = target.tests.flatMap((pattern) => globSync(pattern));
  const tests = found.filter((test) => !isAmong(test, NOT_RUN)).map((test) => resolve(test));
  const near = tests.filter((test) => dirname(test) === dirname(resolve(path)));
  return near.length > 0 && statSync(path).isFile() ? near : tests;
}

interface Plan {
  readonly folder: string;
  readonly tests: readonly string[];
  readonly mutants: readonly Mutant[];
  /** All of them, or a sample. */
  readonly tried: readonly Mutant[];
  /** How many it is a sample of. */
  readonly sampled: number | undefined;
  /** The code with mutants by absolute path. */
  readonly sources: Readonly<Record<string, string>>;
}

async function listMutants(path: string): Promise<Pick<Plan, 'mutants' | 'sources'>> {
  const found = statSync(path).isDirectory() ? globSync(`${path}/**/*.ts`).toSorted() : [path];
  const names = found.filter((name) => !isAmong(name, NOT_MUTATED));
  const { instrument } = await import(resolve('tools/mutation/mutators.mjs'));
  const inputs = names.map((name) => ({ name, content: readFileSync(name, 'utf8') }));
  const { files, mutants } = await instrument(inputs);
  const sources = files.map(({ name, content }: { name: string; content: string }) => [
    resolve(name),
    content,
  ]);
  return { sources: Object.fromEntries(sources), mutants: mutants.filter(isCounted) };
}

const isCounted = ({ statusReason }: Mutant): boolean => statusReason === undefined;

const isAmong = (path: string, patterns: readonly string[]): boolean =>
  patterns.some((pattern) => matchesGlob(path, pattern));

/** Runs the tests without a mutant. */
async function recordReach({ folder, tests, sources }: Plan): Promise<Reach> {
  const output = `${folder}/reach.json`;
  await runVitest(`${folder}/reach-plan.json`, { tests, sources, output: resolve(output) });
  if (!existsSync(output)) throw new Error('The tests without mutants did not finish');
  const reach: Reach = JSON.parse(readFileSync(output, 'utf8'));
  for (const [file, names] of Object.entries(reach.failed))
    console.log(
      `Left out, since they fail without mutants: ${relative('.', file)}: ${names.join(', ')}`,
    );
  return reach;
}

interface PlannedMutant {
  readonly id: string;
  readonly key: string;
  readonly isFresh: boolean;
  readonly hitLimit: number;
  readonly tests: Readonly<Record<string, readonly string[] | null>>;
}

type Tests = Record<string, readonly string[] | null>;

/** Returns nothing for a mutant that no test reaches. */
function planMutant(
  mutant: Mutant,
  { plan, reach, target }: { plan: Plan; reach: Reach; target: Target },
): PlannedMutant[] {
  const { id, fileName } = mutant;
  const { tests, hits } = listReachingTests(id, { reach, target });
  for (const [file, ids] of Object.entries(reach.hooks)) if (ids.includes(id)) tests[file] = null;
  const isFresh = id in reach.loaded && Object.keys(tests).length === 0;
  if (isFresh) for (const file of listTestsOfSource(fileName, { plan, reach })) tests[file] = null;
  if (Object.keys(tests).length === 0) return [];
  const hitLimit = 10_000 + 100 * hits;
  return [{ id, key: toKey(mutant), isFresh, hitLimit, tests: leaveOutFailing(tests, reach) }];
}

function listReachingTests(id: string, { reach, target }: { reach: Reach; target: Target }) {
  const tests: Tests = {};
  let hits = 0;
  for (const [test, counts] of Object.entries(reach.perTest)) {
    const [file, name] = JSON.parse(test);
    if (counts[id] === undefined || reach.failed[file]?.includes(name)) continue;
    hits += counts[id];
    tests[file] = target.runsWholeFiles ? null : [...(tests[file] ?? []), name];
  }
  return { tests, hits };
}

/** A file with a failing test is run by names. */
function leaveOutFailing(
  tests: PlannedMutant['tests'],
  { failed, perTest }: Reach,
): PlannedMutant['tests'] {
  const keys = Object.keys(perTest).map((key) => JSON.parse(key) as [string, string]);
  const entries = Object.entries(tests).map(([file, names]) => {
    const bad = failed[file];
    if (!bad || names) return [file, names] as const;
    return [
      file,
      keys.filter(([f, name]) => f === file && !bad.includes(name)).map(([, name]) => name),
    ] as const;
  });
  return Object.fromEntries(entries);
}

/** The test files that run something of a source file. */
function listTestsOfSource(
  fileName: string,
  { plan, reach }: { plan: Plan; reach: Reach },
): Set<string> {
  const ids = new Set(plan.mutants.filter((m) => m.fileName === fileName).map(({ id }) => id));
  const files = new Set<string>();
  for (const [test, counts] of Object.entries(reach.perTest))
    if (Object.keys(counts).some((id) => ids.has(id))) files.add(JSON.parse(test)[0]);
  for (const [file, hit] of Object.entries(reach.hooks))
    if (hit.some((id) => ids.has(id))) files.add(file);
  return files;
}

/** Runs the mutants, also those after one that the process is stuck in. */
async function runBatch(
  plan: Plan,
  mutants: readonly PlannedMutant[],
  worker: number,
): Promise<void> {
  const { folder, tests, sources } = plan;
  const output = resolve(folder, `batch-${worker}.jsonl`);
  writeFileSync(output, '');
  await runVitest(`${folder}/batch-${worker}.json`, { tests, sources, mutants, output }, output);
  const lines = readLines(output);
  const ended = lines.filter(({ status }) => status !== 'started');
  const endedKeys = new Set(ended.map(({ id }) => id));
  const stuck = lines.find(({ id }) => !endedKeys.has(id));
  if (stuck) ended.push({ id: stuck.id, status: 'stuck' });
  if (ended.length === 0) ended.push(findBroken(`${folder}/batch-${worker}.json.log`, mutants));
  for (const { id } of ended) endedKeys.add(id);
  appendFileSync(
    `${folder}/results.jsonl`,
    ended.map((line) => `${JSON.stringify(line)}\n`).join(''),
  );
  const rest = mutants.filter(({ key }) => !endedKeys.has(key));
  if (rest.length > 0) await runBatch(plan, rest, worker);
}

/** The mutant that prevents the tests from being collected; the stack of the error names it. */
function findBroken(log: string, mutants: readonly PlannedMutant[]): Line {
  const [, id] = /\?fresh=(\d+)/.exec(readFileSync(log, 'utf8')) ?? [];
  const broken = mutants.find((mutant) => mutant.id === id);
  if (!broken) throw new Error(`The tests with mutants did not start: see ${log}`);
  return { id: broken.key, status: 'killed' };
}

interface Line {
  readonly id: string;
  readonly status: Status | 'started';
}

const readLines = (path: string): Line[] =>
  readFileSync(path, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));

/** Resolves when the process has ended; kills it if it writes nothing for too long. */
async function runVitest(planPath: string, plan: object, watched?: string): Promise<void> {
  writeFileSync(planPath, JSON.stringify(plan));
  const args = ['run', '--config', 'tools/mutation/vitest.config.ts', '--reporter=dot', '--silent'];
  const env = { ...process.env, MUTATION_PLAN: resolve(planPath) };
  const log = `${planPath}.log`;
  writeFileSync(log, '');
  const child = spawn('vitest', args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data) => appendFileSync(log, data));
  let size = 0;
  let changedAt = performance.now();
  const timer = setInterval(() => {
    const now = watched ? statSync(watched).size : size;
    if (now !== size) changedAt = performance.now();
    size = now;
    if (watched && size > 0 && performance.now() - changedAt > STUCK_MS) child.kill('SIGKILL');
  }, 1000);
  await new Promise((done) => child.once('close', done));
  clearInterval(timer);
}

/** What is known of the mutants, as long as their source does not change: a test that is added kills more of them. */
function readResults(plan: Plan): Map<string, Status> {
  const path = `${plan.folder}/results.jsonl`;
  const known = new Map<string, Status>();
  if (!existsSync(path)) return known;
  const stored = new Map(readLines(path).map(({ id, status }) => [id, status]));
  for (const mutant of plan.mutants) {
    const status = stored.get(toKey(mutant));
    if (status && status !== 'started') known.set(mutant.id, status);
  }
  return known;
}

function toKey({ fileName, mutatorName, replacement, location }: Mutant): string {
  const text = [readFileSync(fileName, 'utf8'), mutatorName, replacement, JSON.stringify(location)];
  return createHash('sha256').update(text.join('\0')).digest('base64url');
}

/** Prints what survived and the score; returns the exit code. */
function print(path: string, plan: Plan): number {
  const results = readResults(plan);
  const { tried, sampled } = plan;
  const known = tried.filter((mutant) => isEquivalent(mutant));
  const counted = tried.filter((mutant) => !known.includes(mutant));
  const left = counted.filter(({ id }) => !['killed', 'stuck'].includes(results.get(id) ?? ''));
  for (const mutant of left) {
    const { fileName, location, replacement } = mutant;
    const { line, column } = location.start;
    const status = results.get(mutant.id) ?? 'unreached';
    console.log(
      `${fileName}:${line + 1}:${column + 1} ${status}\n  ${readLine(mutant)}\n→ ${replacement}`,
    );
  }
  const score = (100 * (counted.length - left.length)) / Math.max(1, counted.length);
  console.log(
    `${path}: ${score.toFixed(1)} % of ${counted.length} mutants killed, ${left.length} left; ${known.length} are equivalent` +
      (sampled === undefined
        ? ''
        : ` (a sample of ${sampled}, ± ${measureMargin(score, counted.length)} %)`),
  );
  return score < MINIMUM_SCORE ? 1 : 0;
}

/** In percent: 95 % of samples are within it. */
const measureMargin = (score: number, count: number): string =>
  (1.96 * Math.sqrt((score * (100 - score)) / Math.max(1, count))).toFixed(1);

const readLine = ({ fileName, location }: Mutant): string =>
  (readFileSync(fileName, 'utf8').split('\n')[location.start.line] ?? '').trim();

/** A mutant that behaves like the original, with the reason. */
interface Equivalent {
  readonly file: string;
  /** The line that it begins on, trimmed. */
  readonly line: string;
  /** All of the line if left out. */
  readonly replacement?: string;
  readonly reason: string;
}

const EQUIVALENTS: readonly Equivalent[] = JSON.parse(
  readFileSync('tools/mutation/equivalent.json', 'utf8'),
);

const isEquivalent = (mutant: Mutant): boolean =>
  EQUIVALENTS.some(
    ({ file, line, replacement }) =>
      file === mutant.fileName &&
      line === readLine(mutant) &&
      (replacement === undefined || replacement === mutant.replacement),
  );

process.exitCode = await main();
