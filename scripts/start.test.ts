import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { killProcessGroup } from '../packages/cli/test/support/kill-process-group.ts';

// Includes the build if sources have changed.
const START_TIMEOUT_MS = 240_000;

const HOST = /listening on (http:[^\s",]+), talk to it/;
const GATEWAY = /listening on (http:[^\s",]+), routes described/;

let dataDir: string;
let child: ChildProcess;
let ended: Promise<number | null>;
let output = '';

beforeEach(() => {
  dataDir = mkdtempSync(join(tmpdir(), 'sibyl-start-'));
});

afterEach(async () => {
  killProcessGroup(child);
  await ended;
  rmSync(dataDir, { recursive: true, force: true });
});

function start(command: string, ...args: string[]): void {
  const { HOME } = process.env;
  const env = { PATH: listSystemCommands(), HOME, DATA_DIR: dataDir, PORT: '0', GATEWAY_PORT: '0' };
  output = '';
  const stdio: ['ignore', 'pipe', 'pipe'] = ['ignore', 'pipe', 'pipe'];
  const started = spawn(command, args, { env, stdio, detached: true });
  for (const stream of [started.stdout, started.stderr])
    stream.setEncoding('utf8').on('data', (chunk) => {
      output += chunk;
    });
  ended = once(started, 'close').then(([code]) => code);
  child = started;
}

/** Without the commands of this checkout, as in a shell. */
const listSystemCommands = () =>
  (process.env.PATH ?? '')
    .split(delimiter)
    .filter((folder) => !folder.includes('node_modules'))
    .join(delimiter);

async function findAddress(line: RegExp): Promise<string> {
  await expect.poll(() => output, { timeout: START_TIMEOUT_MS }).toMatch(line);
  return line.exec(output)?.[1] ?? '';
}

const fetchStatus = (url: string): Promise<number | undefined> =>
  fetch(`${url}/health`).then(
    ({ status }) => status,
    () => undefined,
  );

it.each([
  ['npm start', 'npm', ['start']],
  ['node scripts/start.ts', process.execPath, ['scripts/start.ts']],
])('%s serves oracle and gateway until SIGTERM', { timeout: START_TIMEOUT_MS }, async (...call) => {
  const [, command, args] = call;
  start(command, ...args);
  const urls = [await findAddress(HOST), await findAddress(GATEWAY)];
  expect(await Promise.all(urls.map(fetchStatus))).toEqual([200, 200]);
  expect(output).toContain(', its model offline');
  child.kill('SIGTERM');
  await ended;
  expect(await Promise.all(urls.map(fetchStatus))).toEqual([undefined, undefined]);
  expect(output).not.toContain('without it');
});

it('scripts/start.ts --no-gateway runs no gateway', { timeout: START_TIMEOUT_MS }, async () => {
  start(process.execPath, 'scripts/start.ts', '--no-gateway');
  expect(await fetchStatus(await findAddress(HOST))).toBe(200);
  child.kill('SIGTERM');
  expect(await ended).toBe(0);
  expect(output).not.toMatch(GATEWAY);
});

it.each([
  ['npm run gateway', 'npm', ['run', 'gateway']],
  ['node scripts/gateway.ts', process.execPath, ['scripts/gateway.ts']],
])('%s serves it until SIGTERM', { timeout: START_TIMEOUT_MS }, async (...call) => {
  const [, command, args] = call;
  start(command, ...args);
  const url = await findAddress(GATEWAY);
  expect(await fetchStatus(url)).toBe(200);
  child.kill('SIGTERM');
  await ended;
  expect(await fetchStatus(url)).toBe(undefined);
});
