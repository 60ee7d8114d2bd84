import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { type RunningDemoChain, startDemoChain } from '../../demo-chain/src/index.js';
import { type SibylRun, sibyl, startSibyl, useFolder } from './support/sibyl.js';

const DATA_DIR = join(useFolder(), 'data');
const started: SibylRun[] = [];
let chain: RunningDemoChain;

beforeAll(async () => {
  chain = await startDemoChain();
});

afterAll(() => chain.close());

afterEach(async () => {
  for (const { child, ended } of started.splice(0)) {
    child.kill('SIGKILL');
    await ended;
  }
});

function start(args: readonly string[], env: Record<string, string> = {}): SibylRun {
  const own = { DATA_DIR, PORT: '0', GATEWAY_PORT: '0', GATEWAY_UPSTREAMS: chain.url, ...env };
  const run = startSibyl(args, { env: own, input: '' });
  started.push(run);
  return run;
}

/** Loading takes a while on a busy machine. */
const TIMEOUT = { timeout: 60_000 };
const HOST = /listening on (http:\S+?), talk to it/;
const GATEWAY = /listening on (http:\S+?), routes described/;

async function addressIn(run: SibylRun, line: RegExp): Promise<string> {
  await expect.poll(() => run.stdout + run.stderr, TIMEOUT).toMatch(line);
  return line.exec(run.stdout)?.[1] ?? '';
}

const fetchStatus = (url: string): Promise<number | undefined> =>
  fetch(`${url}/health`).then(
    ({ status }) => status,
    () => undefined,
  );

async function takenPort() {
  const other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  return { other, port: String((other.address() as AddressInfo).port) };
}

it('sibyl start runs an oracle until SIGTERM', { timeout: 120_000 }, async () => {
  const run = start(['start', '--port', '0'], { PORT: '1' });
  const url = await addressIn(run, HOST);
  expect(await fetchStatus(url)).toBe(200);
  run.child.kill('SIGTERM');
  expect(await run.ended).toBe(0);
  expect(await fetchStatus(url)).toBeUndefined();
});

it('sibyl gateway runs a gateway until SIGTERM', { timeout: 120_000 }, async () => {
  const run = start(['gateway']);
  const url = await addressIn(run, GATEWAY);
  expect(await fetchStatus(url)).toBe(200);
  run.child.kill('SIGTERM');
  expect(await run.ended).toBe(0);
});

const LogLine = {
  level: 'info',
  time: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
  msg: expect.any(String),
};

it('start --with-gateway runs both, logs alike, stops both', { timeout: 120_000 }, async () => {
  const run = start(['start', '--with-gateway']);
  const gateway = await addressIn(run, GATEWAY);
  expect(await fetchStatus(await addressIn(run, HOST))).toBe(200);
  expect(await fetchStatus(gateway)).toBe(200);
  run.child.kill('SIGTERM');
  expect(await run.ended).toBe(0);
  expect(await fetchStatus(gateway)).toBeUndefined();
  expect(run.stderr).toBe('');
  for (const line of run.stdout.trim().split('\n'))
    expect(JSON.parse(line)).toEqual(expect.objectContaining(LogLine));
});

it('the agent of an oracle can ask the gateway beside it', { timeout: 120_000 }, async () => {
  const url = await addressIn(start(['start', '--with-gateway']), HOST);
  const message =
    'use load_capability {"names": ["chain"]}, then use query_chain {"path": "/ixo/entity/params"}';
  const env = { SIBYL_KEY_FILE: join(DATA_DIR, 'user.key') };
  const asked = await sibyl(['chat', url, '--message', message], { env });
  expect(asked.stdout).toContain('nftContractAddress');
});

it('sibyl start --with-gateway leaves no gateway behind', { timeout: 120_000 }, async () => {
  const run = start(['start', '--with-gateway']);
  const gateway = await addressIn(run, GATEWAY);
  run.child.kill('SIGKILL');
  await expect.poll(() => fetchStatus(gateway)).toBeUndefined();
});

it.each([
  ['whose port is taken', (port: string) => ({ GATEWAY_PORT: port }), 'set GATEWAY_PORT'],
  ['that is configured wrong', () => ({ GATEWAY_AUTH: 'maybe' }), 'has ended (exit code 1)'],
])(
  'sibyl start --with-gateway runs without a gateway %s',
  { timeout: 120_000 },
  async (_, envFor, message) => {
    const { other, port } = await takenPort();
    const run = start(['start', '--with-gateway'], envFor(port));
    const url = await addressIn(run, HOST);
    await expect.poll(() => run.stderr).toContain(message);
    other.close();
    expect(await fetchStatus(url)).toBe(200);
    run.child.kill('SIGTERM');
    expect(await run.ended).toBe(0);
  },
);

it.each(['start', 'gateway'])(
  '%s names a port that is taken',
  { timeout: 120_000 },
  async (name) => {
    const { other, port } = await takenPort();
    const run = start([name, '--port', port]);
    expect(await run.ended).toBe(1);
    other.close();
    expect(run.stderr).toContain(port);
    expect(run.stderr).not.toMatch(/^\s+at /m);
  },
);

it.each([
  ['start', { PORT: 'x' }, 'PORT (host): must be a whole number'],
  ['gateway', { GATEWAY_AUTH: 'maybe' }, 'GATEWAY_AUTH'],
])(
  '%s --json reports a wrong variable as JSON',
  { timeout: 120_000 },
  async (name, env, message) => {
    const run = start([name, '--json'], env);
    expect(await run.ended).toBe(1);
    expect(JSON.parse(run.stdout)).toEqual({
      error: expect.stringContaining(message),
      code: 'failed',
    });
    expect(run.stderr).toBe('');
  },
);
