// Runs checks of the project and prints one line of totals at the end; the output of each check is one block. Without options,
// static checks run beside the tests that take less than ten seconds each. With --all, the longer tests run instead. With --full,
// all run, with their full counts, and checks by third-party tools are added.
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { TSC } from './build.ts';
import { installPrograms } from './debian-programs.ts';
import { SKIPPED } from './third-party.ts';

const REPORT = 'test-output/vitest.json';

interface Check {
  readonly name: string;
  readonly command: readonly string[];
}

/** Tools and published clients, each with its own lock file; types and lint need them too. */
const INSTALL: Check = {
  name: 'tools and published clients',
  command: ['npm', 'run', 'tools'],
};

const BUILD: Check = { name: 'types and build', command: ['node', 'scripts/build.ts'] };

const STATIC: readonly Check[] = [
  { name: 'types of the tests', command: ['node', TSC, '-p', 'tsconfig.tests.json'] },
  { name: 'format and lint', command: ['biome', 'check', '--error-on-warnings'] },
  {
    name: 'boundaries',
    command: ['depcruise', '--output-type', 'err', 'packages', 'plugins', 'examples', 'bench'],
  },
  { name: 'dead code', command: ['knip'] },
  { name: 'words', command: ['node', 'scripts/word-list.ts'] },
];

const VITEST = [
  ...['vitest', 'run', '--reporter=default', '--reporter=json'],
  `--outputFile.json=${REPORT}`,
];
const SHORT_TESTS: Check = { name: 'tests', command: [...VITEST, '--project=!long'] };
const LONG_TESTS: Check = { name: 'long tests', command: [...VITEST, '--project=long'] };

/** More failed files than this are no accident of a busy machine. */
const MAX_REPEATED_FILES = 20;

/** Third-party tools, which need more than Node and take minutes. */
const THIRD_PARTY: readonly Check[] = [
  { name: 'schemathesis', command: ['node', 'scripts/schemathesis.ts'] },
  { name: 'FastMCP', command: ['node', 'scripts/fastmcp.ts'] },
  { name: 'moto (S3)', command: ['node', 'scripts/moto.ts'] },
  { name: 'generated clients', command: ['node', 'scripts/generated-clients.ts'] },
  {
    name: 'schema of the demo chain',
    command: ['node', 'packages/demo-chain/scripts/compile-protos.ts', '--check'],
  },
  { name: 'Helm', command: ['node', 'scripts/helm.ts'] },
  { name: 'promtool', command: ['node', 'scripts/promtool.ts'] },
  { name: 'Synapse', command: ['node', 'scripts/synapse.ts'] },
  { name: 'clients of surfaces', command: ['node', 'scripts/surface-clients.ts'] },
];

const totals = { passed: 0, failed: 0, skipped: 0 };

type Mode = 'short' | 'all' | 'full';

const TESTS: Readonly<Record<Mode, readonly Check[]>> = {
  short: [SHORT_TESTS],
  all: [LONG_TESTS],
  full: [SHORT_TESTS, LONG_TESTS],
};

async function main(): Promise<number> {
  mkdirSync('test-output', { recursive: true });
  const mode = (['full', 'all'] as const).find((name) => process.argv.includes(`--${name}`));
  if (mode === 'full') process.env.SIBYL_TEST_FULL = '1';
  if (!(await runCheck(INSTALL))) return 1;
  if (mode !== undefined) installPrograms();
  // Many tests run the build output, so they start after the build.
  await Promise.all([
    mode !== 'all' && runInSequence(STATIC),
    runCheck(BUILD).then((isBuilt) => runTests(isBuilt ? TESTS[mode ?? 'short'] : [])),
  ]);
  if (mode === 'full') await runInSequence(THIRD_PARTY);
  const { passed, failed, skipped } = totals;
  console.log(`\n${passed} passed, ${failed} failed${skipped ? `, ${skipped} skipped` : ''}`);
  return failed === 0 ? 0 : 1;
}

async function runInSequence(checks: readonly Check[]): Promise<void> {
  for (const check of checks) await runCheck(check);
}

/** Resolves to whether the check passed. */
async function runCheck(check: Check): Promise<boolean> {
  const { code, isSkipped } = await report(check);
  totals[isSkipped ? 'skipped' : code === 0 ? 'passed' : 'failed'] += 1;
  return code === 0;
}

/** Runs a check, and prints its output as one block. */
async function report(check: Check) {
  const { name, command } = check;
  const startedAt = performance.now();
  const { code, output } = await runCommand(command);
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(0);
  const isSkipped = code === SKIPPED && THIRD_PARTY.includes(check);
  const result = isSkipped ? 'skipped' : code === 0 ? 'passed' : 'failed';
  console.log(`\n── ${name}: ${command.join(' ')}\n${output}── ${name} ${result} in ${seconds} s`);
  return { code, output, isSkipped };
}

function runCommand([command = '', ...args]: readonly string[]) {
  return new Promise<{ code: number; output: string }>((resolve) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text: string) => {
        output += text;
      });
    child.once('error', (error) => resolve({ code: 1, output: `${output}${error.message}\n` }));
    child.once('close', (code) => resolve({ code: code ?? 1, output }));
  });
}

/** What Vitest reports of a file. */
interface TestFile {
  readonly name: string;
  /** Also failed if a hook failed, or the file could not be loaded. */
  readonly status: 'passed' | 'failed';
  readonly assertionResults: readonly { readonly status: string }[];
}

async function runTests(checks: readonly Check[]): Promise<void> {
  for (const check of checks) await runTestFiles(check);
}

async function runTestFiles(tests: Check): Promise<void> {
  const { name, command } = tests;
  console.log(`\n── ${name} started; their output follows when they end`);
  const { code, output, files } = await runVitest(tests);
  if (!files) return countMissingReport();
  const failed = files.filter(({ status }) => status === 'failed').map(({ name }) => name);
  if (!isRepeated(failed, output)) return count(files, code);
  console.log(`\n! These failed, and are repeated:\n${failed.join('\n')}`);
  const again = await runVitest({ name: `${name} again`, command: [...command, ...failed] });
  if (!again.files) return countMissingReport();
  const passed = files.filter(({ status }) => status === 'passed');
  count([...passed, ...again.files], again.code);
}

async function runVitest(check: Check) {
  rmSync(REPORT, { force: true });
  const { code, output } = await report(check);
  return { code, output, files: readReport() };
}

/**
 * In CI, where the machine may stand still for seconds, a file whose tests fail runs once more, from its beginning: a defect
 * fails twice. An error outside of all tests is always a defect.
 */
const isRepeated = (failed: readonly string[], output: string) =>
  process.env.CI !== undefined &&
  failed.length > 0 &&
  failed.length <= MAX_REPEATED_FILES &&
  !output.includes('Unhandled Error');

/** Adds the tests of all files to the totals, and Vitest itself as one check. */
function count(files: readonly TestFile[], code: number): void {
  totals[code === 0 ? 'passed' : 'failed'] += 1;
  for (const { status } of files.flatMap((file) => file.assertionResults))
    totals[status === 'passed' || status === 'failed' ? status : 'skipped'] += 1;
}

function countMissingReport(): void {
  console.log('✗ The tests wrote no report');
  totals.failed += 1;
}

function readReport(): readonly TestFile[] | undefined {
  try {
    return JSON.parse(readFileSync(REPORT, 'utf8')).testResults;
  } catch {
    return undefined;
  }
}

process.exitCode = await main();
