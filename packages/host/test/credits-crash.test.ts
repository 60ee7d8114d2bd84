import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { startControlledModel } from './support/controlled-model.js';
import { runHost, untilListening } from './support/process.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const GRANT = 300_000;

it('the credits plugin charges a turn that kill -9 interrupted for its recorded cost', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'sibyl-credits-'));
  const model = await startControlledModel();
  const env = {
    ...model.env,
    PORT: '0',
    DATA_DIR: dataDir,
    CREDITS_ENABLED: 'true',
    CREDITS_INITIAL_GRANT: String(GRANT),
    CREDITS_PRICES: JSON.stringify({ '*': { input: 1_000_000, output: 1_000_000 } }),
  };
  const start = async () => {
    const host = runHost(env);
    onTestFinished(() => void host.child.kill('SIGKILL'));
    const url = await untilListening(host);
    const card = (await (await fetch(`${url}/.well-known/oracle.json`)).json()) as { did: string };
    return { ...host, url, did: card.did };
  };
  onTestFinished(async () => {
    model.close();
    await rm(dataDir, { recursive: true, force: true });
  });

  const first = await start();
  const alice = new TestUser(first);
  await stream(alice, await openSession(alice), { message: 'hello' });
  (await model.next()).call({ name: 'list_capabilities', input: {} });
  const second = await model.next();
  const { reserved } = (await alice.request('GET', '/credits')).body;
  expect(reserved).toBeGreaterThan(0);
  first.child.kill('SIGKILL');
  await first.ended;

  const later = alice.at(await start());
  const readCredits = async () => (await later.request('GET', '/credits')).body;
  await expect.poll(async () => (await readCredits()).reserved).toBe(0);
  const { balance, entries } = await readCredits();
  // 10 tokens of the first call, and about what the second had been sent.
  const sent = JSON.stringify(second.body).length / 4;
  expect(GRANT - balance).toBeGreaterThan(10 + sent / 2);
  expect(GRANT - balance).toBeLessThan(reserved);
  expect(entries[0]).toMatchObject({ kind: 'charge', note: 'the turn was interrupted' });
});
