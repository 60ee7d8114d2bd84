// Runs tests against many mutants in one process, so that modules are loaded once. The plan names the tests and, unless the
// reach of the tests is to be recorded, the mutants.
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, describe, it, type TestContext } from 'vitest';

type Test = TestContext['task'];
type Suite = NonNullable<Test['suite']>;
type Counts = Record<string, number>;

interface PlannedMutant {
  readonly id: string;
  /** Stays the same while its source does. */
  readonly key: string;
  /** Runs only while modules are loaded, which happens once per process: they are loaded again. */
  readonly isFresh: boolean;
  readonly hitLimit: number;
  /** Names of tests by file; all of the file if undefined. */
  readonly tests: Readonly<Record<string, readonly string[] | null>>;
}

interface Plan {
  readonly tests: readonly string[];
  readonly mutants?: readonly PlannedMutant[];
  readonly output: string;
}

interface Switch {
  activeMutant?: string | undefined;
  currentTestId?: string | undefined;
  hitCount?: number;
  hitLimit?: number;
  mutantCoverage: { static: Counts; perTest: Record<string, Counts> };
}

const plan: Plan = JSON.parse(readFileSync(process.env.MUTATION_PLAN ?? '', 'utf8'));

/** What the code with mutants reads and writes. */
const active: Switch = { mutantCoverage: { static: {}, perTest: {} } };
Object.assign(globalThis, { __stryker__: active });

if (plan.mutants) for (const mutant of plan.mutants) runMutant(mutant);
else recordReach(plan.tests);

function recordReach(tests: readonly string[]): void {
  const { mutantCoverage } = active;
  const failed: Record<string, string[]> = {};
  const hooks: Record<string, string[]> = {};
  let loaded: Counts = {};
  beforeAll(() => {
    loaded = { ...mutantCoverage.static };
  });
  for (const file of tests)
    describe(file, async () => {
      let before: Counts = {};
      beforeAll(() => {
        before = { ...mutantCoverage.static };
      });
      beforeEach(({ task, onTestFailed }) => {
        const name = getName(task, file);
        onTestFailed(() => {
          failed[file] = [...(failed[file] ?? []), name];
        });
        active.currentTestId = JSON.stringify([file, name]);
      });
      afterEach(() => {
        active.currentTestId = undefined;
      });
      afterAll(() => {
        const counts = Object.entries(mutantCoverage.static);
        hooks[file] = counts.filter(([id, n]) => n > (before[id] ?? 0)).map(([id]) => id);
      });
      await import(/* @vite-ignore */ `${file}?reach`);
    });
  afterAll(() => {
    const reach = { loaded, hooks, failed, perTest: mutantCoverage.perTest };
    writeFileSync(plan.output, JSON.stringify(reach));
  });
}

function runMutant({ id, key, isFresh, hitLimit, tests }: PlannedMutant): void {
  const report = (line: object) => appendFileSync(plan.output, `${JSON.stringify(line)}\n`);
  describe(`mutant ${id}`, async () => {
    let failure: string | undefined;
    // biome-ignore lint/correctness/noEmptyPattern: Vitest requires the pattern.
    beforeAll(({}, suite) => {
      report({ id: key, status: 'started' });
      skipUnless(suite, (test, file) => tests[file]?.includes(getName(test, file)) ?? true);
      Object.assign(active, { activeMutant: id, hitCount: 0, hitLimit });
    });
    beforeEach(({ task, onTestFailed }) => {
      onTestFailed(() => {
        failure ??= task.fullTestName;
        for (let suite = task.suite; suite; suite = suite.suite)
          if (suite.name === `mutant ${id}`) skipUnless(suite, () => false);
      });
    });
    // biome-ignore lint/correctness/noEmptyPattern: Vitest requires the pattern.
    afterAll(({}, suite) => {
      active.activeMutant = undefined;
      failure ??= findFailure(suite);
      report({ id: key, status: failure ? 'killed' : 'survived', ...(failure && { failure }) });
    });
    for (const file of Object.keys(tests))
      describe(file, async () => {
        if (isFresh) active.activeMutant = id;
        const error = await importTests(`${file}?${isFresh ? 'fresh' : 'mutant'}=${id}`);
        active.activeMutant = undefined;
        failure ??= error;
        // Hooks run only where there are tests.
        it('is loaded', () => {});
      });
  });
}

/** Returns the reason if the file cannot be loaded. */
async function importTests(file: string): Promise<string | undefined> {
  try {
    await import(/* @vite-ignore */ file);
    return undefined;
  } catch (error) {
    return `${file}: ${error}`;
  }
}

/** Skips tests that have not run yet, and whole suites of them, so that their hooks do not run either. */
function skipUnless(
  suite: Suite,
  isWanted: (test: Test, file: string) => boolean,
  file = '',
): boolean {
  const wanted = suite.tasks.map((task) => {
    if (task.mode === 'skip' || task.result) return false;
    const isNeeded =
      task.type === 'suite' ? skipUnless(task, isWanted, file || task.name) : isWanted(task, file);
    if (!isNeeded) task.mode = 'skip';
    return isNeeded;
  });
  return wanted.some(Boolean);
}

/** The name of a test below its file. */
function getName(task: Test, file: string): string {
  const names = [task.name];
  for (let suite = task.suite; suite && suite.name !== file; suite = suite.suite)
    names.unshift(suite.name);
  return names.join(' > ');
}

interface Node {
  readonly name: string;
  readonly result?: { readonly state: string } | undefined;
  readonly tasks?: readonly Node[];
}

/** A hook that failed leaves its tests skipped. */
function findFailure(node: Node): string | undefined {
  if (node.result?.state === 'fail') return node.name;
  for (const task of node.tasks ?? []) {
    const failure = findFailure(task);
    if (failure) return failure;
  }
  return undefined;
}
