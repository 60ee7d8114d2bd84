import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import { finishTestRun, startTestRun } from '../../test/support/test-runs.js';
import { createIdSource } from './database.js';
import { toUtcDay } from './usage-store.js';

const DAY_MS = 24 * 60 * 60 * 1000;
const oracleDid = 'did:key:zOracle';

describe.each(engines)('UsageStore on %s', (engine) => {
  let now = Date.UTC(2026, 0, 1, 12);
  const clock = () => now;
  const newId = createIdSource(clock);
  const test = useStore(engine, { clock });

  async function createSession(owner: string, title = 'Untitled') {
    const { sessionId } = await test.store.sessions.create({ owner, oracleDid, title });
    return { owner, sessionId };
  }

  async function use(session: { owner: string; sessionId: string }, input: number, id = newId()) {
    const { key } = await startTestRun(test.store, { ...session, runId: id });
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
      await startTestRun(test.store, { ...session, runId: newId(), limits });
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

describe('ModelUsageStore', () => {
  let now = Date.UTC(2026, 2, 31, 23, 59, 59, 999);
  const test = useStore('sqlite', { clock: () => now });

  it('add returns the total of the day, which all hosts on the database share', async () => {
    const { modelUsage } = test.store;
    const other = (await test.another()).modelUsage;
    expect(await modelUsage.total('2026-01-01')).toBe(0);
    expect(await modelUsage.add('2026-01-01', 100)).toBe(100);
    expect(await other.add('2026-01-01', 20)).toBe(120);
    expect(await modelUsage.add('2026-01-02', 3)).toBe(3);
    expect(await modelUsage.total('2026-01-01')).toBe(120);
    expect(await other.total('2026-01-02')).toBe(3);
    expect(await modelUsage.total('2026-01-03')).toBe(0);
  });

  it('concurrent hosts lose no tokens', async () => {
    const stores = [test.store.modelUsage, (await test.another()).modelUsage];
    const day = '2026-02-01';
    await Promise.all(Array.from({ length: 20 }, (_, i) => stores[i % 2]?.add(day, 5)));
    expect(await test.store.modelUsage.total(day)).toBe(100);
  });

  it('prune deletes the days that are more than 31 days ago', async () => {
    const { modelUsage } = test.store;
    for (const day of ['2026-02-27', '2026-02-28', '2026-03-31']) await modelUsage.add(day, 1);
    const readTotals = () =>
      Promise.all(['2026-02-27', '2026-02-28', '2026-03-31'].map((day) => modelUsage.total(day)));
    await modelUsage.prune();
    expect(await readTotals()).toEqual([0, 1, 1]);
    // The next day in UTC.
    now += 1;
    await modelUsage.prune();
    expect(await readTotals()).toEqual([0, 0, 1]);
  });

  it('toUtcDay changes at midnight in UTC', () => {
    expect(toUtcDay(now - 1)).toBe('2026-03-31');
    expect(toUtcDay(now)).toBe('2026-04-01');
  });
});
