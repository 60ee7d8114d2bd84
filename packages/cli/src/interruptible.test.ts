import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { Interruption, runProgram } from './interruptible.js';

it('runProgram starts nothing after an interruption', async () => {
  const cwd = mkdtempSync(join(tmpdir(), 'sibyl-interruptible-'));
  onTestFinished(() => rmSync(cwd, { recursive: true }));
  const run = (signal: AbortSignal) =>
    runProgram('touch', ['started'], { cwd, advice: 'try again', signal });
  const interruption = new Interruption('SIGINT');
  await expect(run(AbortSignal.abort(interruption))).rejects.toBe(interruption);
  expect(existsSync(join(cwd, 'started'))).toBe(false);
  await run(new AbortController().signal);
  expect(existsSync(join(cwd, 'started'))).toBe(true);
});
