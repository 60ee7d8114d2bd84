import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, vi } from 'vitest';
import { ensureBuilt } from '../../../../scripts/build.ts';
import { run as runCommandLine } from '../../src/run.js';

// Here rather than in a test: a build may take longer than a test may.
ensureBuilt();

/** The program. */
export const MAIN = join(import.meta.dirname, '../../bin/sibyl.js');

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

/**
 * Runs a command line in this process: a separate one takes a second to load the host. Each command also runs
 * as a process in at least one test.
 */
export async function sibylInProcess(
  args: readonly string[],
  { env = {}, cwd = process.cwd() }: Pick<RunOptions, 'env' | 'cwd'> = {},
) {
  const before = { env: { ...process.env }, cwd: process.cwd() };
  const { PATH = '', HOME = '' } = before.env;
  const written = { stdout: '', stderr: '' };
  const record = (name: keyof typeof written) =>
    vi.spyOn(process[name], 'write').mockImplementation((chunk) => {
      written[name] += chunk;
      return true;
    });
  const spies = [record('stdout'), record('stderr')];
  replaceEnvironment({ PATH, HOME, ...env });
  process.chdir(cwd);
  try {
    const code = await runCommandLine(args);
    return { code, stdout: written.stdout.trim(), stderr: written.stderr.trim() };
  } finally {
    for (const spy of spies) spy.mockRestore();
    process.chdir(before.cwd);
    replaceEnvironment(before.env);
  }
}

function replaceEnvironment(env: NodeJS.ProcessEnv): void {
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, env);
}

/** A folder for the surrounding file. */
export function useFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-cli-'));
  // What npm installs there is tens of thousands of files.
  afterAll(() => rmSync(folder, { recursive: true, force: true }), 300_000);
  return folder;
}
