import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';

const folder = mkdtempSync(join(tmpdir(), 'sibyl-lock-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Writes a line when it has acquired the lock and one before it releases it; `hold` never releases it. */
const PROGRAM = `
import { appendFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
const [module, lock, log, mode] = process.argv.slice(1);
const { withFileLock } = await import(module);
await withFileLock(lock, async () => {
  appendFileSync(log, 'enter\\n');
  await setTimeout(mode === 'hold' ? 1e9 : 20);
  appendFileSync(log, 'leave\\n');
});
`;

function run(name: string, mode = 'pass'): { child: ChildProcess; ended: Promise<unknown[]> } {
  const module = new URL('./file-lock.ts', import.meta.url).href;
  const args = ['--input-type=module', '--disable-warning=ExperimentalWarning', '-e', PROGRAM];
  const files = [join(folder, `${name}.lock`), join(folder, `${name}.log`)];
  const child = spawn(process.execPath, [...args, module, ...files, mode], { stdio: 'inherit' });
  return { child, ended: once(child, 'close') };
}

const readLines = (name: string) =>
  readFileSync(join(folder, `${name}.log`), { encoding: 'utf8', flag: 'a+' })
    .trim()
    .split('\n');

it('withFileLock lets one process at a time run its task', async () => {
  const runs = Array.from({ length: 4 }, () => run('many'));
  const codes = await Promise.all(runs.map(({ ended }) => ended));
  expect(codes).toEqual(runs.map(() => [0, null]));
  expect(readLines('many')).toEqual(runs.flatMap(() => ['enter', 'leave']));
});

it('withFileLock frees the lock of a process that was killed', async () => {
  const holder = run('killed', 'hold');
  await expect.poll(() => readLines('killed')).toEqual(['enter']);
  const next = run('killed');
  holder.child.kill('SIGKILL');
  expect(await next.ended).toEqual([0, null]);
  expect(readLines('killed')).toEqual(['enter', 'enter', 'leave']);
});
