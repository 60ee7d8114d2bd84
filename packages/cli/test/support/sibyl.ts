import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import { ensureBuilt } from '../../../../scripts/build.ts';

// Here rather than in a test: a build may take longer than a test may.
ensureBuilt();

const MAIN = join(import.meta.dirname, '../../bin/sibyl.js');

/** One run of the command. */
export interface SibylRun {
  readonly child: ChildProcess;
  /** Its output until now. */
  readonly stdout: string;
  readonly stderr: string;
  /** Resolves to the exit code. */
  readonly ended: Promise<number | null>;
}

interface RunOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** What it reads, all at once; open without. */
  readonly input?: string;
}

/** Starts `sibyl` as a user would. */
export function startSibyl(args: readonly string[], options: RunOptions = {}): SibylRun {
  const { PATH = '', HOME = '' } = process.env;
  const child = spawn(process.execPath, [MAIN, ...args], {
    env: { PATH, HOME, ...options.env },
    cwd: options.cwd,
    stdio: 'pipe',
  });
  const run = { child, stdout: '', stderr: '', ended: once(child, 'close').then(([code]) => code) };
  child.stdout.setEncoding('utf8').on('data', (chunk) => {
    run.stdout += chunk;
  });
  child.stderr.setEncoding('utf8').on('data', (chunk) => {
    run.stderr += chunk;
  });
  if (options.input !== undefined) child.stdin.end(options.input);
  return run;
}

/** Runs `sibyl` to its end. */
export async function sibyl(args: readonly string[], options: RunOptions = {}) {
  const run = startSibyl(args, { input: '', ...options });
  const code = await run.ended;
  return { code, stdout: run.stdout.trim(), stderr: run.stderr.trim() };
}

/** A folder for the surrounding file. */
export function useFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-cli-'));
  // What npm installs there is tens of thousands of files.
  afterAll(() => rmSync(folder, { recursive: true, force: true }), 300_000);
  return folder;
}
