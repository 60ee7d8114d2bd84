import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { linkSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { killProcessGroup } from '../packages/cli/test/support/kill-process-group.ts';

const MAX_MB = 400;
const BUILD_MS = 400_000;

const run = (command: string, ...args: string[]) => {
  const { status, stdout, stderr } = spawnSync(command, args, { encoding: 'utf8' });
  expect(status, stderr).toBe(0);
  return stdout;
};

/** Links the files of this checkout, and what `npm ci` has installed, into a new folder, without anything that a build has written. */
function copyCheckout(): string {
  mkdirSync('test-output', { recursive: true });
  const folder = mkdtempSync(join('test-output', 'start-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const listed = run('git', 'ls-files', '--cached', '--others', '--exclude-standard');
  for (const file of listed.trim().split('\n')) {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    linkSync(file, join(folder, file));
  }
  run('cp', process.platform === 'linux' ? '-al' : '-a', 'node_modules', folder);
  rmSync(join(folder, 'node_modules/.cache'), { recursive: true, force: true });
  return folder;
}

/** Memory of a process and all that it has started, in MB. */
function measureTree(root: number): number {
  const processes = run('ps', '-A', '-o', 'pid=,ppid=,rss=')
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/\s+/).map(Number) as [number, number, number]);
  const tree = new Set([root]);
  // A process may have a smaller id than the one that started it.
  for (let size = 0; size < tree.size; ) {
    size = tree.size;
    for (const [pid, parent] of processes) if (tree.has(parent)) tree.add(pid);
  }
  const sizes = processes.filter(([pid]) => tree.has(pid)).map(([, , kB]) => kB / 1024);
  return sizes.reduce((sum, each) => sum + each, 0);
}

it(`npm start of a new checkout takes less than ${MAX_MB} MB once it has built and serves`, {
  timeout: BUILD_MS + 60_000,
}, async () => {
  const folder = copyCheckout();
  const { HOME, PATH } = process.env;
  const started = spawn('npm', ['start'], {
    cwd: folder,
    env: { HOME, PATH, DATA_DIR: join(folder, 'data'), PORT: '0', GATEWAY_PORT: '0' },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  const ended = once(started, 'close');
  onTestFinished(async () => {
    killProcessGroup(started);
    await ended;
  });
  let output = '';
  for (const stream of [started.stdout, started.stderr])
    stream.setEncoding('utf8').on('data', (chunk) => {
      output += chunk;
    });
  await expect.poll(() => output, { timeout: BUILD_MS }).toContain('Built in');
  await expect.poll(() => output).toMatch(/listening on http:\S+, talk to it/);
  await expect.poll(() => output).toMatch(/listening on http:\S+, routes described/);
  expect(measureTree(started.pid ?? 0)).toBeLessThan(MAX_MB);
});
