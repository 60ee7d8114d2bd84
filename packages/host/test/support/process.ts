import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { ensureBuilt } from '../../../../scripts/build.ts';

// Not in a test, because a build may take longer than a test may.
ensureBuilt();

const MAIN = join(import.meta.dirname, '../../dist/bundle/main.js');

/** The host as an operator runs it: built, in a separate process. */
export interface HostProcess {
  readonly child: ChildProcess;
  /** Everything it has written to stdout and stderr. */
  output(): string;
  /** Resolves to the exit code, or the signal that ended it. */
  readonly ended: Promise<number | string>;
}

export function runHost(
  env: Record<string, string>,
  nodeArgs: readonly string[] = [],
  main = MAIN,
  launcher: readonly string[] = [],
): HostProcess {
  const { PATH = '', HOME = '' } = process.env;
  const [command = process.execPath, ...args] = [...launcher, process.execPath, ...nodeArgs, main];
  const child = spawn(command, args, {
    env: { PATH, HOME, HOST: '127.0.0.1', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
    });
  const ended = once(child, 'close').then(([code, signal]) => code ?? signal);
  return { child, ended, output: () => text };
}

/** Waits until the process listens and returns its address; fails with its output if it ends before. */
export async function untilListening({ child, ended, output }: HostProcess): Promise<string> {
  let hasEnded = false;
  void ended.then(() => {
    hasEnded = true;
  });
  for (;;) {
    const [, url] = /listening on (http:[^\s",]+)/.exec(output()) ?? [];
    if (url) return url;
    if (hasEnded) throw new Error(`The host did not start:\n${output()}`);
    await Promise.race([once(child.stdout ?? child, 'data'), ended]);
  }
}
