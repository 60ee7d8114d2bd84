// Runs every check of the project and ends with one line of figures; with --full, checks by third-party tools too.
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';

const REPORT = 'test-output/vitest.json';

const checks: Record<string, readonly string[]> = {
  'types and build': ['node', 'scripts/build.ts'],
  'types of the tests': ['tsc', '-p', 'tsconfig.tests.json'],
  'format and lint': ['biome', 'check', '--error-on-warnings'],
  boundaries: ['depcruise', '--output-type', 'err', 'packages', 'plugins', 'examples', 'bench'],
  'dead code': ['knip'],
  'length of files and functions': ['node', 'scripts/style-figures.ts'],
  tests: ['vitest', 'run', '--reporter=default', '--reporter=json', `--outputFile.json=${REPORT}`],
};

/** Third-party tools, which need more than Node and take minutes. */
const fullChecks: Record<string, readonly string[]> = {
  schemathesis: ['node', 'scripts/schemathesis.ts'],
};

/** The exit code of a check that cannot run here; it has printed why. */
const SKIPPED = 77;

function run([command = '', ...args]: readonly string[]): Promise<number> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { stdio: ['ignore', 'inherit', 'inherit'] });
    child.once('error', () => resolve(1)).once('close', (code) => resolve(code ?? 1));
  });
}

interface Report {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
}

function readReport(): Report | undefined {
  try {
    return JSON.parse(readFileSync(REPORT, 'utf8'));
  } catch {
    return undefined;
  }
}

mkdirSync('test-output', { recursive: true });
let passed = 0;
let failed = 0;
let skipped = 0;
const wanted = process.argv.includes('--full') ? { ...checks, ...fullChecks } : checks;
for (const [name, command] of Object.entries(wanted)) {
  console.log(`\n── ${name}: ${command.join(' ')}`);
  const code = await run(command);
  if (code === 0) passed++;
  else if (code === SKIPPED && name in fullChecks) skipped++;
  else {
    failed++;
    console.log(`✗ ${name} failed`);
  }
}
const report = readReport();
if (!report) console.log('✗ The tests left no report');
passed += report?.numPassedTests ?? 0;
failed += report?.numFailedTests ?? 1;
skipped += report?.numPendingTests ?? 0;
console.log(`\n${passed} passed, ${failed} failed${skipped ? `, ${skipped} skipped` : ''}`);
process.exitCode = failed === 0 ? 0 : 1;
