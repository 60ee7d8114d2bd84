import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { Interface } from 'node:readline/promises';
import { text } from 'node:stream/consumers';
import { CommandError } from './command.js';

/** Ctrl-C, a terminal that closes, and a request to end, with the exit codes that shells expect. */
const EXIT_CODES = { SIGINT: 130, SIGHUP: 129, SIGTERM: 143 } as const;

type SignalName = keyof typeof EXIT_CODES;

/** The work was ended by a signal. */
export class Interruption extends Error {
  constructor(readonly signal: SignalName) {
    super(`Interrupted by ${signal}`);
  }
}

/** Aborts the work at the first signal, and lets it clean up: further signals do nothing. Resolves to the exit code. */
export async function interruptible(
  work: (signal: AbortSignal) => Promise<number>,
): Promise<number> {
  const controller = new AbortController();
  const interrupt = (name: SignalName) => controller.abort(new Interruption(name));
  const names = Object.keys(EXIT_CODES) as SignalName[];
  for (const name of names) process.on(name, interrupt);
  try {
    return await work(controller.signal);
  } catch (error) {
    if (error instanceof Interruption) return EXIT_CODES[error.signal];
    throw error;
  } finally {
    for (const name of names) process.off(name, interrupt);
  }
}

/**
 * Listens for Ctrl-C as long as the terminal is open: an event of the terminal, or a signal where there is no terminal.
 * The first one during a turn ends the turn, any other one the conversation.
 */
export class Interrupts {
  stopTurn: (() => void) | undefined;

  constructor(terminal: Interface) {
    const interrupt = () => {
      const { stopTurn } = this;
      this.stopTurn = undefined;
      if (stopTurn) stopTurn();
      else terminal.close();
    };
    terminal.on('SIGINT', interrupt);
    process.on('SIGINT', interrupt);
    terminal.once('close', () => process.off('SIGINT', interrupt));
  }
}

/** Removes a folder, if it exists; under another name first, so that nothing half removed is ever in its place. */
export async function removeFolder(folder: string): Promise<void> {
  const removed = join(dirname(folder), `.${basename(folder)}-${randomUUID()}`);
  try {
    await rename(folder, removed);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    throw error;
  }
  await rm(removed, { recursive: true, force: true, maxRetries: 10 });
}

interface ProgramOptions {
  readonly cwd: string;
  /** What to do if it fails. */
  readonly advice: string;
  /** Ends it, and all that it has started. */
  readonly signal: AbortSignal;
  readonly isSilent?: boolean;
}

export async function runProgram(
  program: string,
  args: readonly string[],
  { cwd, advice, signal, isSilent = false }: ProgramOptions,
): Promise<void> {
  signal.throwIfAborted();
  const errors = isSilent ? 'ignore' : 'inherit';
  // In a separate process group: Ctrl-C reaches this process alone, which can then end all of the group.
  const child = spawn(program, args, { cwd, stdio: ['ignore', 'pipe', errors], detached: true });
  const end = () => killGroup(child);
  signal.addEventListener('abort', end);
  // Before a listener that removes what the program writes.
  process.prependListener('exit', end);
  // Compilers report errors there.
  const printed = text(child.stdout).catch(() => '');
  try {
    const failure = await waitForEnd(child);
    signal.throwIfAborted();
    const command = [program, ...args].join(' ');
    if (failure !== undefined)
      throw new CommandError(`${await printed}${command} failed${failure}: ${advice}`);
  } finally {
    signal.removeEventListener('abort', end);
    process.off('exit', end);
  }
}

/** Resolves once the program has ended: to nothing if it succeeded, else to what is known about the failure. */
const waitForEnd = (child: ChildProcess) =>
  new Promise<string | undefined>((resolve) => {
    child.once('error', ({ message }) => resolve(` (${message})`));
    child.once('close', (code) => resolve(code === 0 ? undefined : ''));
  });

/** npm would finish its current step first, and write files that are removed at the same time. */
function killGroup({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL');
  } catch (error) {
    // It has ended by itself; macOS refuses until its exit code is read.
    if (!['ESRCH', 'EPERM'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}
