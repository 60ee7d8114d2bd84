import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { insertRows } from '../../test/support/stored-rows.js';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import { createRunRequest, expectStarted, finishTestRun } from '../../test/support/test-runs.js';
import { endInterrupted } from '../turns/run/run-end.js';
import { IdempotencyStore } from './idempotency-store.js';
import { openDatabase } from './open-database.js';

describe.each(engines)('IdempotencyStore on %s', (engine) => {
  let now = 1_000;
  const test = useStore(engine, { clock: () => now });

  async function buildRequest(owner: string, bodyHash = 'hash', key = 'key') {
    const { sessionId } = await test.store.sessions.create({ owner, oracleDid: 'did:o' });
    const idempotency = { key, bodyHash, expiresAt: now + 100 };
    return createRunRequest({ owner, sessionId, idempotency });
  }

  it('RunStore.start claims a key for exactly one of 50 concurrent requests, across processes', async () => {
    const second = await test.another();
    const request = await buildRequest(newOwner());
    const results = await Promise.all(
      Array.from({ length: 50 }, (_, i) => (i % 2 === 0 ? test.store : second).runs.start(request)),
    );
    const started = results.filter((result) => result.state === 'started');
    expect(started).toHaveLength(1);
    const runId = started[0]?.run.runId;
    expect(results.filter(({ state }) => state === 'existing')).toEqual(
      Array(49).fill({ state: 'existing', runId }),
    );
    const { owner } = request;
    const key = 'key';
    const first = { bodyHash: 'hash', runId, isUnanswered: false };
    expect(await second.idempotency.find({ owner, key })).toEqual(first);
  });

  it('RunStore.start returns a conflict for the same key with another body', async () => {
    const owner = newOwner();
    await test.store.runs.start(await buildRequest(owner));
    const other = await buildRequest(owner, 'other');
    expect(await test.store.runs.start(other)).toEqual({ state: 'conflict' });
  });

  it.each([
    ['interrupted', 'host_stopping', '', 'started'],
    ['failed', 'store_unavailable', '', 'started'],
    ['interrupted', 'host_stopping', 'half', 'existing'],
    ['interrupted', 'turn_interrupted', '', 'existing'],
    ['failed', 'model_unavailable', '', 'existing'],
    ['aborted', undefined, '', 'existing'],
    ['finished', undefined, '', 'existing'],
  ] as const)(
    'RunStore.finish as %s with %s and %j: one of 20 simultaneous retries finds its key %s',
    async (status, code, content, state) => {
      const { runs } = test.store;
      const second = await test.another();
      const request = await buildRequest(newOwner());
      const first = await runs.start(request);
      if (first.state !== 'started') throw new Error(first.state);
      const report = code === undefined ? {} : { error: { code, message: 'why' } };
      const key = { owner: request.owner, runId: first.run.runId };
      await finishTestRun(runs, key, { status, content, report });
      const retries = await Promise.all(
        Array.from({ length: 20 }, (_, i) =>
          (i % 2 === 0 ? runs : second.runs).start({ ...request, runId: crypto.randomUUID() }),
        ),
      );
      const started = retries.filter((retry) => retry.state === 'started');
      expect(started).toHaveLength(state === 'started' ? 1 : 0);
      for (const { run } of started)
        expect(run).toMatchObject({ turn: first.run.turn, attempt: 2, status: 'running' });
      expect(await countQuestions(request)).toBe(1);
      const runId = started[0]?.run.runId ?? first.run.runId;
      expect(retries.filter((retry) => retry.state === 'existing')).toEqual(
        Array(20 - started.length).fill({ state: 'existing', runId }),
      );
    },
  );

  /** Starts a run with a key, and ends it as another host does after a crash. */
  async function startAndCrash() {
    const request = await buildRequest(newOwner());
    const left = expectStarted(await test.store.runs.start(request));
    const key = { owner: request.owner, runId: left.runId };
    const step = { step: 1, value: { type: 'model' } };
    await test.store.runs.flush([{ ...key, frames: [], steps: [step] }]);
    const { runs } = await test.another();
    await runs.close(left, endInterrupted);
    return { request, left, retry: () => runs.start({ ...request, runId: crypto.randomUUID() }) };
  }

  it('RunStore.start with the key of a run whose host died without text continues its turn', async () => {
    const { request, left, retry } = await startAndCrash();
    const { runs, idempotency } = test.store;
    const unanswered = { runId: left.runId, isUnanswered: true };
    expect(await idempotency.find({ owner: request.owner, key: 'key' })).toMatchObject(unanswered);
    const next = expectStarted(await retry());
    expect(next).toMatchObject({ attempt: 2, messageId: left.messageId, requestId: 'request' });
    expect(await runs.steps(next)).toEqual([{ type: 'model' }]);
    const { hostId = '' } = next;
    const there = await test.another({ hostId });
    await finishTestRun(there.runs, next, { content: 'At last' });
    expect(await runs.steps(next)).toEqual([]);
    expect(await retry()).toEqual({ state: 'existing', runId: next.runId });
    expect(await countQuestions(request)).toBe(1);
  });

  it('RunStore.start with the key of a run whose host died does not continue its turn after later ones', async () => {
    const { request, retry } = await startAndCrash();
    const { owner, sessionId } = request;
    expectStarted(await test.store.runs.start(createRunRequest({ owner, sessionId })));
    expect(await retry()).toEqual({ state: 'superseded' });
    expect(await countQuestions(request)).toBe(2);
  });

  it('RunStore.pruneFrames deletes the steps that nothing has continued', async () => {
    const { left } = await startAndCrash();
    const { runs } = test.store;
    await test.forAllUsers(() => runs.pruneFrames({ endedBefore: now + 1 }));
    expect(await runs.steps(left)).toEqual([]);
  });

  async function countQuestions({ owner, sessionId }: { owner: string; sessionId: string }) {
    const page = await test.store.messages.page({ owner, sessionId, branch: 0, limit: 100 });
    return 'ok' in page ? page.ok.messages.filter(({ type }) => type === 'human').length : 0;
  }

  it('IdempotencyStore separates the keys of users', async () => {
    const [mine, theirs] = [newOwner(), newOwner()];
    await test.store.runs.start(await buildRequest(mine));
    expect(await test.store.idempotency.find({ owner: theirs, key: 'key' })).toBeUndefined();
    expect(await test.store.runs.start(await buildRequest(theirs))).toMatchObject({
      state: 'started',
    });
  });

  it('IdempotencyStore.find and RunStore.start return the run of the key', async () => {
    const { runs, idempotency } = test.store;
    const owner = newOwner();
    const start = async (key: string) => runs.start(await buildRequest(owner, `of ${key}`, key));
    const keys = ['a', 'b', 'c'];
    const started = new Map<string, string>();
    for (const key of keys) started.set(key, expectStarted(await start(key)).runId);
    for (const key of keys) {
      const runId = started.get(key);
      expect(await idempotency.find({ owner, key })).toMatchObject({
        runId,
        bodyHash: `of ${key}`,
      });
      expect(await start(key)).toEqual({ state: 'existing', runId });
    }
    expect(await idempotency.find({ owner, key: 'd' })).toBeUndefined();
  });

  it('IdempotencyStore.prune deletes many keys in portions', async () => {
    const owner = newOwner();
    const row = { owner, body_hash: 'hash', run_id: 'run', created_at: 1, expires_at: now - 1 };
    const rows = Array.from({ length: 1_500 }, (_, i) => ({ ...row, key: `key ${i}` }));
    const database = await openDatabase(test.options);
    onTestFinished(() => database.close());
    await insertRows(database, 'idempotency_keys', ...rows);
    const write = vi.spyOn(database, 'write');
    const context = { database, clock: () => now, newId: () => crypto.randomUUID() };
    const pruned = await test.forAllUsers(() => new IdempotencyStore(context).prune());
    expect(pruned).toBeGreaterThanOrEqual(rows.length);
    expect(write.mock.calls.length).toBeGreaterThan(1);
    const left = database.tables.selectFrom('idempotency_keys').select('key');
    expect(await left.where('owner', '=', owner).execute()).toEqual([]);
  });

  it('IdempotencyStore.prune deletes only expired keys, which can be claimed again', async () => {
    const { runs, idempotency } = test.store;
    const owner = newOwner();
    await runs.start(await buildRequest(owner));
    now += 100;
    expect(await idempotency.find({ owner, key: 'key' })).toBeUndefined();
    expect(await runs.start(await buildRequest(owner, 'other'))).toMatchObject({
      state: 'started',
    });
    expect(await test.forAllUsers(() => idempotency.prune())).toBeGreaterThanOrEqual(1);
    expect(await idempotency.find({ owner, key: 'key' })).toMatchObject({ bodyHash: 'other' });
  });
});
