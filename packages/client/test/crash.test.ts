import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import {
  type ControlledModel,
  startControlledModel,
} from '../../host/test/support/controlled-model.js';
import { findFreePort } from '../../host/test/support/free-port.js';
import { type HostProcess, runHost, untilListening } from '../../host/test/support/process.js';
import { createTestClient } from './support/client.js';
import { read } from './support/reading.js';

let dataDir: string;
let model: ControlledModel;
let host: HostProcess;
beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'sibyl-client-'));
  model = await startControlledModel();
});
afterEach(async () => {
  vi.useRealTimers();
  host.child.kill('SIGKILL');
  await host.ended;
});
afterAll(async () => {
  model.close();
  await rm(dataDir, { recursive: true, force: true });
});

async function start(at?: string): Promise<string> {
  const port = at ?? String(await findFreePort());
  host = runHost({ PORT: port, DATA_DIR: dataDir, ...model.env });
  return untilListening(host);
}

it('stream resumes after a server crash with exactly the stored text', async () => {
  const url = await start();
  const client = createTestClient({ url });
  const { sessionId } = await client.sessions.create();
  const reading = read(client.stream(sessionId, 'go'));
  const turn = await model.next();
  turn.say('this is stored, ');
  await reading.waitForText('this is stored, ');
  const isStored = async () => ((await client.runs.current(sessionId))?.lastSeq ?? 0) >= 2;
  await expect.poll(isStored).toBe(true);
  turn.say('this hardly');
  await reading.waitForText('this is stored, this hardly');
  host.child.kill('SIGKILL');
  await host.ended;
  await start(new URL(url).port);
  await reading.ended;
  const [, stored] = await client.messages.list(sessionId);
  expect(stored).toMatchObject({ type: 'ai', isComplete: false });
  expect(reading.turn).toMatchObject({ status: 'interrupted', text: stored?.content });
});

it.each([-3600, 3600])('requests work on a device whose clock is %i s off', async (seconds) => {
  const url = await start();
  vi.useFakeTimers({ toFake: ['Date'] });
  vi.setSystemTime(Date.now() + seconds * 1000);
  const client = createTestClient({ url });
  expect((await client.sessions.list()).total).toBe(0);
  const { expiration } = await client.delegation.grant({
    capabilities: [{ can: 'store/*', with: client.did }],
  });
  expect(expiration).toBeDefined();
  expect(await client.delegation.status()).toEqual({ authorized: true, expiration });
});
