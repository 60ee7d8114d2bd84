import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { afterEach, describe, expect, it } from 'vitest';

const MODULE = new URL('./process-signals.ts', import.meta.url).href;

const children: ChildProcess[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

/** Runs code that may use the module, and waits until it prints `ready`. */
async function run(code: string, env: NodeJS.ProcessEnv = {}) {
  const script = `import * as signals from '${MODULE}';
    const logger = { error: log, fatal: log };
    function log({ err }, message) { console.log(message, err.message); }
    setInterval(() => {}, 1000);
    ${code}`;
  const { npm_lifecycle_event: _, ...own } = process.env;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...own, ...env },
  });
  children.push(child);
  const output = text(child.stdout);
  await once(child.stdout, 'data');
  const ended = once(child, 'exit').then(([exitCode, signal]) => exitCode ?? signal);
  return { child, ended, output };
}

const WAIT = `signals.waitForShutdown().then(() => console.log('stopping')); console.log('ready');`;

describe('waitForShutdown', () => {
  it.each(['SIGTERM', 'SIGINT'] as const)(
    'resolves at %s; a second one ends the process',
    async (signal) => {
      const { child, ended } = await run(WAIT);
      child.kill(signal);
      await once(child.stdout as NodeJS.ReadableStream, 'data');
      child.kill(signal);
      expect(await ended).toBe(signal);
    },
  );

  it.each([
    ['resolves', { npm_lifecycle_event: 'start' }, 'stopping\n'],
    ['does not resolve', {}, ''],
  ])('%s when the parent is gone, given %o', async (_, env, expected) => {
    const inner = `import('${MODULE}').then(async ({ waitForShutdown }) => {
      const timer = setTimeout(() => process.exit(), 1500);
      process.send('ready');
      process.disconnect();
      await waitForShutdown();
      process.stdout.write('stopping\\n', () => process.exit());
    })`;
    const outer = `import { spawn } from 'node:child_process';
      const inner = spawn(process.execPath, ['--eval', ${JSON.stringify(inner)}], {
        stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      });
      inner.once('message', () => { process.stdout.write('ready\\n', () => process.exit()); });`;
    const { output } = await run(outer, env);
    expect(await output).toBe(`ready\n${expected}`);
  });
});

describe('logUnhandledRejections', () => {
  it('logs a rejection and lets the process continue', async () => {
    const { output, ended } = await run(`signals.logUnhandledRejections(logger);
      console.log('ready');
      void Promise.reject(new Error('forgotten'));
      setTimeout(() => process.exit(0), 50);`);
    expect(await ended).toBe(0);
    expect(await output).toContain('unhandled rejection forgotten');
  });
});

describe('waitForUncaughtException', () => {
  it('resolves once and logs only the first of several', async () => {
    const { output, ended } = await run(`signals.waitForUncaughtException(logger).then(() =>
        setTimeout(() => process.exit(7), 100));
      console.log('ready');
      setInterval(() => { throw new Error('thrown in a timer'); }, 10);`);
    expect(await ended).toBe(7);
    expect((await output).match(/thrown in a timer/g)).toHaveLength(1);
  });
});
