import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { join as joinRun, openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

let model: ControlledModel;
let host: TestHost;
let alice: TestUser;
let database: DatabaseSync;
beforeAll(async () => {
  model = await startControlledModel();
  host = await startHost({ env: { STORE_WAIT_SECONDS: '600', ...model.env } });
  alice = new TestUser(host);
  database = new DatabaseSync(join(host.dataDir, 'sibyl.db'));
});
afterAll(async () => {
  database.close();
  await host.close();
  model.close();
});

/** Makes the database reject one kind of change of a run until it is stopped. */
async function refuse(status: string): Promise<() => Promise<void>> {
  const body = "select raise(abort, 'refused by the test')";
  await change(
    `create trigger refuse before update on runs when new.status = '${status}' begin ${body}; end`,
  );
  return () => change('drop trigger refuse');
}

/** The host, in this process, may be in the middle of a transaction: waiting here would keep it from ending that. */
const change = (statement: string) =>
  vi.waitFor(() => database.exec(statement), { timeout: 30_000, interval: 5 });

const countRefusals = () => host.log.filter(({ msg }) => msg === 'outcome not stored yet').length;

it('the end of a run and the start of the next one are stored together', async () => {
  const sessionId = await openSession(alice);
  const one = await stream(alice, sessionId, { message: 'one' });
  const turn = await model.next();
  const two = await stream(alice, sessionId, { message: 'two' });
  const three = await stream(alice, sessionId, { message: 'three' });
  await three.untilEvent('run');
  const allow = await refuse('running');
  turn.finish();
  await expect.poll(countRefusals).toBeGreaterThan(1);
  expect(one.frames.some(({ event }) => event === 'done')).toBe(false);
  await allow();
  expect((await one.toEnd()).at(-1)?.data.status).toBe('finished');
  for (const next of [two, three]) {
    (await model.next()).finish();
    expect((await next.toEnd()).at(-1)?.data.status).toBe('finished');
  }
});

it('an outcome that cannot be stored is held until it can', async () => {
  const sessionId = await openSession(alice);
  const live = await stream(alice, sessionId, { message: 'keep it' });
  const turn = await model.next();
  const allow = await refuse('finished');
  turn.say('the answer');
  turn.finish();
  const before = countRefusals();
  await expect.poll(countRefusals).toBeGreaterThan(before + 2);
  const joined = await joinRun(alice, live.runId, 0);
  await joined.untilEvent('message');
  expect(joined.frames.some(({ event }) => event === 'done')).toBe(false);
  await allow();
  expect((await live.toEnd()).at(-1)?.data.status).toBe('finished');
  const { body } = await alice.request('GET', `/messages/${sessionId}`);
  expect(body.messages.at(-1)).toMatchObject({ content: 'the answer', isComplete: true });
});
