import { describe, expect, it } from 'vitest';
import { readRows } from '../../test/support/stored-rows.js';
import { newOwner, useStore } from '../../test/support/test-database.js';
import { finishTestRun, openTestSession, startTestRun } from '../../test/support/test-runs.js';
import type { SessionKey } from '../bus/event-bus.js';
import { createIdSource } from './database.js';
import type { TokenUsage } from './schema/runs.js';
import { addEntries } from './usage-store.js';

const none = { input: 0, output: 0, cached: 0 };

describe('UsageStore.read in detail', () => {
  let now = Date.UTC(2026, 0, 1, 23, 59);
  const clock = () => now;
  const newId = createIdSource(clock);
  const test = useStore('sqlite', { clock });

  async function use(session: SessionKey, usage?: TokenUsage) {
    const { key } = await startTestRun(test.store, { ...session, runId: newId() });
    await finishTestRun(test.store.runs, key, { usage });
    return key;
  }

  /** Day, model, turns, tokens and cost of each entry, in order. */
  async function read(owner: string, since = 0) {
    const entries = await test.store.usage.read(owner, since);
    return entries
      .map(({ day, model, turns, cost, ...used }) => [
        ...[day, model, turns, used.input_tokens, used.output_tokens, used.cached_tokens, cost],
      ])
      .sort();
  }

  it('adds up input, output, cached tokens and cost by day and model, and turns of all models', async () => {
    const session = await openTestSession(test.store);
    const large = { model: 'large', input: 10, output: 20, cached: 5, cost: 0.5 };
    const small = { model: 'small', input: 1, output: 2, cached: 0 };
    await use(session, { ...none, models: [large, small] });
    await use(session, { ...none, models: [large] });
    now += 120_000;
    await use(session, { ...none, models: [{ ...small, cost: 0.25 }] });
    await use(session, { ...none, models: [small] });
    const expected = [
      ['2026-01-01', '', 2, 0, 0, 0, null],
      ['2026-01-01', 'large', 2, 20, 40, 10, 1],
      ['2026-01-01', 'small', 1, 1, 2, 0, null],
      ['2026-01-02', '', 2, 0, 0, 0, null],
      ['2026-01-02', 'small', 2, 2, 4, 0, 0.25],
    ];
    expect(await read(session.owner)).toEqual(expected);
    await test.store.sessions.delete(session);
    expect(await read(session.owner)).toEqual(expected);
    expect(await read(session.owner, Date.UTC(2026, 0, 2))).toEqual(expected.slice(3));
  });

  it('counts a turn with several attempts once, and the tokens of each', async () => {
    const { runs } = test.store;
    const session = await openTestSession(test.store);
    const { run, key } = await startTestRun(test.store, { ...session, runId: newId() });
    const next = await runs.resume(run, []);
    if (!next) throw new Error('not resumed');
    const models = [{ model: 'm', input: 1, output: 1, cached: 1 }];
    await test.store.usage.replace(key, models);
    await finishTestRun(runs, { ...key, runId: next.runId }, { usage: { ...none, models } });
    const day = '2026-01-02';
    expect(await read(session.owner)).toEqual([
      [day, '', 1, 0, 0, 0, null],
      [day, 'm', 1, 2, 2, 2, null],
    ]);
  });

  it('counts a turn for each model of its attempts, although the last attempt called none', async () => {
    const { runs } = test.store;
    const session = await openTestSession(test.store);
    const { run, key } = await startTestRun(test.store, { ...session, runId: newId() });
    now += 1;
    const next = await runs.resume(run, []);
    if (!next) throw new Error('not resumed');
    await test.store.usage.replace(key, [{ model: 'm', input: 1, output: 1, cached: 1 }]);
    await finishTestRun(runs, { ...key, runId: next.runId });
    const expected = [
      ['2026-01-02', '', 1, 0, 0, 0, null],
      ['2026-01-02', 'm', 1, 1, 1, 1, null],
    ];
    expect(await read(session.owner)).toEqual(expected);
    await test.store.sessions.delete(session);
    expect(await read(session.owner)).toEqual(expected);
  });

  it('tokens of a run without models belong to an unknown one, if there are any', async () => {
    const session = await openTestSession(test.store);
    const readModels = async () => (await read(session.owner)).slice(1).map((row) => row.slice(1));
    await use(session);
    await use(session, none);
    expect(await readModels()).toEqual([]);
    await use(session, { input: 0, output: 3, cached: 0 });
    expect(await readModels()).toEqual([['unknown', 1, 0, 3, 0, null]]);
    await use(session, { input: 4, output: 0, cached: 2 });
    expect(await readModels()).toEqual([['unknown', 2, 4, 3, 2, null]]);
  });

  it('keeps the usage of a session that is deleted, imported and deleted again', async () => {
    const { sessions, usage } = test.store;
    const session = await openTestSession(test.store);
    const models = [{ model: 'm', input: 1, output: 2, cached: 3, cost: 1 }];
    const kept = [];
    for (const cost of [undefined, 2, undefined]) {
      const { owner, sessionId } = session;
      if (kept.length > 0)
        await test.store.imports.insert(owner, 'sessions', [
          { ...(await readRow(session.owner)), id: sessionId },
        ]);
      await use(session, { ...none, models: models.map((model) => ({ ...model, cost })) });
      await sessions.delete(session);
      kept.push((await usage.read(owner, 0)).find(({ model }) => model === 'm'));
    }
    expect(kept.map((entry) => entry?.turns)).toEqual([1, 2, 3]);
    expect(kept.map((entry) => entry?.cost)).toEqual([null, 2, 2]);
    expect(kept[2]).toMatchObject({ input_tokens: 3, output_tokens: 6, cached_tokens: 9 });
  });

  /** The stored row of a new session of the user. */
  async function readRow(owner: string) {
    const { sessionId: id } = await test.store.sessions.create({
      owner,
      oracleDid: 'did:key:zOracle',
    });
    return (await readRows(test.store, 'sessions', owner)).find((row) => row.id === id);
  }
});

// Operators see the runs of all users.
describe('SessionStore and usage', () => {
  let now = Date.UTC(2026, 0, 1);
  const test = useStore('sqlite', { clock: () => now, hasTwins: false });

  it('keeps what unlisted sessions have used, however they are deleted', async () => {
    const { sessions } = test.store;
    const models = [{ model: 'm', input: 1, output: 2, cached: 0 }];
    const owner = newOwner();
    const create = async () => {
      const unlisted = { owner, oracleDid: 'did:key:zOracle', isUnlisted: true };
      const { sessionId } = (await sessions.createWithin(1, unlisted)) ?? {};
      if (sessionId === undefined) throw new Error('not created');
      const { key } = await startTestRun(test.store, { owner, sessionId });
      await finishTestRun(test.store.runs, key, { usage: { ...none, models } });
    };
    await create();
    await create();
    now += 31 * 86_400_000;
    expect(await sessions.pruneUnlisted()).toBe(1);
    expect(await sessions.list({ owner, limit: 10, offset: 0 })).toMatchObject({ total: 0 });
    const used = await test.store.usage.read(owner, 0);
    const tokens = used.filter(({ model }) => model === 'm').map((entry) => entry.input_tokens);
    expect(tokens).toEqual([1, 1]);
  });
});

describe('UsageStore.replace for operators', () => {
  const test = useStore('sqlite', { hasTwins: false });

  it('replace stores what operators see as the cost of the run', async () => {
    const { usage, turnReports } = test.store;
    const { key } = await startTestRun(test.store);
    await finishTestRun(test.store.runs, key);
    const readCost = async () =>
      (await turnReports.sumByUser(0)).find(({ user }) => user === key.owner)?.cost;
    const [first, second] = [1, 2].map((cost) => ({ ...none, model: `${cost}`, cost }));
    if (!first || !second) throw new Error('no models');
    await usage.replace(key, [first, second, { ...none, model: 'free' }]);
    expect(await readCost()).toBe(3);
    await usage.replace(key, [{ ...none, model: 'free' }]);
    expect(await readCost()).toBe(null);
  });
});

describe('addEntries', () => {
  const entry = { turns: 1, input_tokens: 2, output_tokens: 3, cached_tokens: 4, cost: null };

  it('adds up each figure; the cost is unknown only if both are', () => {
    expect(addEntries(entry, entry)).toEqual({
      ...{ turns: 2, input_tokens: 4, output_tokens: 6, cached_tokens: 8, cost: null },
    });
    expect(addEntries({ ...entry, cost: 1 }, entry).cost).toBe(1);
    expect(addEntries({ ...entry, cost: null }, { ...entry, cost: 2 }).cost).toBe(2);
    expect(addEntries({ ...entry, cost: 1 }, { ...entry, cost: 2 }).cost).toBe(3);
  });
});
