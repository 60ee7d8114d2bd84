// Runs every check of the project and ends with one line of figures.
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
for (const [name, command] of Object.entries(checks)) {
  console.log(`\n── ${name}: ${command.join(' ')}`);
  if ((await run(command)) === 0) passed++;
  else {
    failed++;
    console.log(`✗ ${name} failed`);
  }
}
const report = readReport();
if (!report) console.log('✗ The tests left no report');
passed += report?.numPassedTests ?? 0;
failed += report?.numFailedTests ?? 1;
const skipped = report?.numPendingTests ? `, ${report.numPendingTests} skipped` : '';
console.log(`\n${passed} passed, ${failed} failed${skipped}`);
process.exitCode = failed === 0 ? 0 : 1;
