import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import { finishTestRun, startTestRun } from '../../test/support/test-runs.js';
import { createIdSource } from './id-source.js';

const DAY_MS = 24 * 60 * 60 * 1000;
const oracleDid = 'did:key:zOracle';

describe.each(engines)('UsageStore on %s', (engine) => {
  let now = Date.UTC(2026, 0, 1, 12);
  const clock = () => now;
  const newId = createIdSource(clock);
  const test = useStore(engine, { clock });

  async function createSession(owner: string, title = 'Untitled') {
    const { id: sessionId } = await test.store.sessions.create({ owner, oracleDid, title });
    return { owner, sessionId };
  }

  async function use(session: { owner: string; sessionId: string }, input: number, id = newId()) {
    const { key } = await startTestRun(test.store, { ...session, id });
    const used = { input, output: 0, cached: 0 };
    const usage = { ...used, models: [{ model: 'sonnet', ...used }] };
    await finishTestRun(test.store.runs, key, { usage });
    return key;
  }

  /** Session, turns and input tokens of each entry of the model. */
  async function read(owner: string, since: number) {
    const entries = await test.store.usage.read(owner, since);
    return entries
      .filter(({ model }) => model === 'sonnet')
      .map((entry) => [entry.session_id, entry.turns, entry.input_tokens])
      .sort();
  }

  it('UsageStore.read adds up the usage of one user since a time, also that of deleted sessions', async () => {
    const owner = newOwner();
    const first = await createSession(owner);
    const second = await createSession(owner);
    await use(first, 100);
    // The id of a run may begin with a later time than it was created.
    await use(second, 100, 'ffffffff-0000-7000-8000-000000000000');
    now += DAY_MS;
    const since = now;
    await use(first, 1);
    await use(second, 2);
    await use(second, 4);
    const expected = [
      [first.sessionId, 1, 1],
      [second.sessionId, 2, 6],
    ].sort();
    expect(await read(owner, since)).toEqual(expected);
    await test.store.sessions.delete(first);
    expect(await read(owner, since)).toEqual(expected);
    await test.store.sessions.delete(second);
    expect(await read(owner, since)).toEqual(expected);
    expect(await read(newOwner(), 0)).toEqual([]);
  });

  it('UsageStore.read adds up more than 500 runs', async () => {
    const session = await createSession(newOwner());
    const limits = { live: 1_000, waiting: 1_000 };
    for (let i = 0; i < 501; i += 1)
      await startTestRun(test.store, { ...session, id: newId(), limits });
    expect(await test.store.usage.read(session.owner, 0)).toMatchObject([{ turns: 501 }]);
  });

  it('UsageStore.replace changes the usage of one run', async () => {
    const session = await createSession(newOwner());
    const key = await use(session, 1);
    await use(session, 2);
    const models = [{ model: 'sonnet', input: 10, output: 0, cached: 0 }];
    await test.store.usage.replace({ ...key, owner: newOwner() }, []);
    await test.store.usage.replace(key, models);
    expect(await read(session.owner, 0)).toEqual([[session.sessionId, 2, 12]]);
  });

  it('UsageStore.readTitles returns the titles of the given sessions of one user', async () => {
    const owner = newOwner();
    const { sessionId } = await createSession(owner, 'First');
    await createSession(owner, 'Second');
    const ids = [sessionId, 'unknown'];
    const { usage } = test.store;
    expect(await usage.readTitles(owner, ids)).toEqual(new Map([[sessionId, 'First']]));
    expect(await usage.readTitles(newOwner(), ids)).toEqual(new Map());
  });
});
