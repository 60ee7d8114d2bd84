import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterEach, expect, it } from 'vitest';
import { startTestNode } from '../../demo-chain/test/support/test-node.js';
import { ask } from './support/running-gateway.js';

const folder = mkdtempSync(join(tmpdir(), 'sibyl-gateway-process-'));
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
  rmSync(folder, { recursive: true, force: true });
});

const FROM_SOURCE = [
  '--experimental-transform-types',
  '--disable-warning=ExperimentalWarning',
  '--conditions=sibyl-source',
  '--import',
  new URL('./support/source-hooks.ts', import.meta.url).href,
];
const MAIN = new URL('../src/main.ts', import.meta.url).pathname;

/** Runs the gateway from its sources. */
function run(env: Record<string, string>): ChildProcess {
  const child = spawn(process.execPath, [...FROM_SOURCE, MAIN], {
    env: { PATH: process.env.PATH, GATEWAY_PORT: '0', DATA_DIR: folder, ...env },
  });
  cleanups.push(() => child.kill('SIGKILL'));
  return child;
}

/** The URL in the log. */
async function findUrl({ stdout }: ChildProcess): Promise<string> {
  let log = '';
  stdout?.on('data', (piece) => {
    log += piece;
  });
  const url = () => /listening on (http:\/\/[^,]+),/.exec(log)?.[1];
  await expect.poll(url).toBeDefined();
  return url() ?? '';
}

it('serves until SIGTERM and then exits', async () => {
  const node = await startTestNode();
  cleanups.push(() => node.close());
  const child = run({ GATEWAY_UPSTREAMS: node.url, GATEWAY_AUTH: 'ucan' });
  const url = await findUrl(child);
  expect((await ask(`${url}/health`)).json.status).toBe('ok');
  expect((await ask(`${url}/ixo/entity/params`)).status).toBe(401);
  expect(statSync(join(folder, 'gateway.key')).mode & 0o777).toBe(0o600);
  child.kill('SIGTERM');
  expect(await once(child, 'exit')).toEqual([0, null]);
});

it('keeps running when the reader of its log is gone', async () => {
  const node = await startTestNode();
  cleanups.push(() => node.close());
  const child = run({ GATEWAY_UPSTREAMS: node.url, LOG_LEVEL: 'debug' });
  const url = await findUrl(child);
  child.stdout?.destroy();
  for (let i = 0; i < 5; i++) expect((await ask(`${url}/ixo/entity/params`)).status).toBe(200);
  child.kill('SIGTERM');
  expect(await once(child, 'exit')).toEqual([0, null]);
});

it('reports all configuration errors in one message', async () => {
  const child = run({ GATEWAY_UPSTREAMS: 'http://x', GATEWAY_COMPAT: 'no' });
  const said = text(child.stderr as NodeJS.ReadableStream);
  expect(await once(child, 'exit')).toEqual([1, null]);
  expect(await said).toMatch(/^2 variables are wrong in the environment:\n/);
});

it('reports an address in use and exits', async () => {
  const node = await startTestNode();
  cleanups.push(() => node.close());
  const child = run({ GATEWAY_UPSTREAMS: node.url, GATEWAY_PORT: String(node.port) });
  const said = text(child.stderr as NodeJS.ReadableStream);
  expect(await once(child, 'exit')).toEqual([1, null]);
  expect(await said).toMatch(/^listen EADDRINUSE/);
});
