import { describe, expect, it, onTestFinished } from 'vitest';
import { allMessages } from '../../../test/support/all-messages.js';
import {
  createTestDatabase,
  engines,
  newOwner,
  type TestStore,
  useStore,
} from '../../../test/support/test-database.js';
import { createIdSource } from '../id-source.js';
import { openDatabase } from '../open-database.js';
import { SessionStore } from '../session-store.js';
import type { Frame } from './frames.js';
import { type EndAbandoned, type NewRun, RunStore, type StartResult } from './run-store.js';

const oracleDid = 'did:key:zOracle';

async function newRequest({ store }: TestStore): Promise<NewRun> {
  const owner = newOwner();
  const { id: sessionId } = await store.sessions.create({ owner, oracleDid });
  return { owner, sessionId, requestId: 'request', status: 'running', message: { content: 'hi' } };
}

function started(result: StartResult) {
  if (result.state !== 'started') throw new Error(result.state);
  return result;
}

function framesFrom(first: number, count: number): Frame[] {
  return Array.from({ length: count }, (_, i) => ({
    seq: first + i,
    event: 'message',
    data: JSON.stringify({ content: `w${first + i} ` }),
  }));
}

async function startOne(test: TestStore) {
  const request = await newRequest(test);
  const { run, message } = started(await test.store.runs.start(request));
  return { request, run, message, key: { owner: run.owner, runId: run.id } };
}

describe.each(engines)('RunStore on %s', (engine) => {
  const test = useStore(engine);

  it('start stores the run together with its message', async () => {
    const { request, run, message, key } = await startOne(test);
    expect(run).toMatchObject({ status: 'running', requestId: 'request', lastSeq: 0, turn: 1 });
    expect(message).toMatchObject({ type: 'human', content: 'hi', runId: run.id });
    expect(await test.store.runs.find(key)).toEqual(run);
    expect(await allMessages(test.store, request)).toEqual([message]);
  });

  it('frames returns the frames after a number in order', async () => {
    const { run, key } = await startOne(test);
    const { runs } = test.store;
    expect(await runs.appendFrames({ ...key, frames: framesFrom(1, 450) })).toBe(true);
    expect(await runs.appendFrames({ ...key, frames: framesFrom(451, 1) })).toBe(true);
    expect(await runs.frames({ ...key, after: 448 })).toEqual(framesFrom(449, 3));
    expect(await runs.frames({ ...key, after: 0 })).toHaveLength(451);
    expect(await runs.find(key)).toMatchObject({ id: run.id, lastSeq: 451 });
  });

  it('appendFrames ignores a frame that is already stored, and stores the others', async () => {
    const { key } = await startOne(test);
    const { runs } = test.store;
    await runs.appendFrames({ ...key, frames: framesFrom(1, 2) });
    expect(await runs.appendFrames({ ...key, frames: framesFrom(2, 2) })).toBe(true);
    expect(await runs.frames({ ...key, after: 0 })).toEqual(framesFrom(1, 3));
    expect(await runs.find(key)).toMatchObject({ lastSeq: 3 });
  });

  it('finish stores the outcome together with the answer, once', async () => {
    const { request, run, key } = await startOne(test);
    const { runs } = test.store;
    const ending = {
      status: 'finished',
      message: { content: 'hello', isComplete: true },
      frames: framesFrom(1, 3),
      usage: { input: 10, output: 5, cached: 2 },
    } as const;
    const results = await Promise.all(
      Array.from({ length: 10 }, () => runs.finish({ ...key, ending })),
    );
    const ended = results.filter((result) => result !== undefined);
    expect(ended).toHaveLength(1);
    expect(ended[0]?.run).toMatchObject({ status: 'finished', lastSeq: 3, usage: ending.usage });
    const stored = await allMessages(test.store, request);
    expect(stored.map(({ content }) => content)).toEqual(['hi', 'hello']);
    expect(stored[1]).toMatchObject({ id: ended[0]?.run.messageId, runId: run.id, turn: 1 });
    expect(await runs.appendFrames({ ...key, frames: framesFrom(4, 1) })).toBe(false);
    expect(await runs.markRunning(key)).toBe(false);
  });

  it('finish stores an error without an answer', async () => {
    const { request, key } = await startOne(test);
    const fault = { kind: 'rate_limit', message: 'Too many requests' } as const;
    await test.store.runs.finish({ ...key, ending: { status: 'failed', fault } });
    expect(await test.store.runs.find(key)).toMatchObject({ status: 'failed', fault });
    expect(await allMessages(test.store, request)).toHaveLength(1);
  });

  it('treats the run of another user as unknown', async () => {
    const { request, run } = await startOne(test);
    const { runs } = test.store;
    const foreign = { owner: newOwner(), runId: run.id };
    await runs.appendFrames({ owner: run.owner, runId: run.id, frames: framesFrom(1, 1) });
    expect(await runs.start({ ...request, owner: foreign.owner })).toEqual({
      state: 'unknown-session',
    });
    expect(await runs.find(foreign)).toBeUndefined();
    expect(await runs.frames({ ...foreign, after: 0 })).toEqual([]);
    expect(await runs.current({ ...foreign, sessionId: run.sessionId })).toBeUndefined();
    expect(await runs.appendFrames({ ...foreign, frames: framesFrom(2, 1) })).toBe(false);
    expect(await runs.finish({ ...foreign, ending: { status: 'aborted' } })).toBeUndefined();
    expect(await runs.find({ owner: run.owner, runId: run.id })).toMatchObject({
      status: 'running',
      lastSeq: 1,
    });
    const { run: waiting } = started(await runs.start({ ...request, status: 'queued' }));
    expect(await runs.markRunning({ ...foreign, runId: waiting.id })).toBe(false);
  });

  it('is deleted with its session, including messages and frames', async () => {
    const { request, key } = await startOne(test);
    const { runs, sessions } = test.store;
    await runs.appendFrames({ ...key, frames: framesFrom(1, 5) });
    const { owner, sessionId } = request;
    const racing = [
      sessions.delete({ owner, sessionId }),
      runs.finish({ ...key, ending: { status: 'finished' } }),
      runs.appendFrames({ ...key, frames: framesFrom(6, 5) }),
    ];
    await Promise.all(racing);
    expect(await runs.find(key)).toBeUndefined();
    expect(await runs.frames({ ...key, after: 0 })).toEqual([]);
    expect(await allMessages(test.store, request)).toEqual([]);
  });
});

describe.each(engines)('RunStore with several runs of a session on %s', (engine) => {
  const test = useStore(engine);

  it('current returns the running run, then the queued one, then the last', async () => {
    const request = await newRequest(test);
    const { runs } = test.store;
    expect(await runs.current(request)).toBeUndefined();
    const { run: first } = started(await runs.start(request));
    const { run: second } = started(await runs.start({ ...request, status: 'queued' }));
    expect((await runs.current(request))?.id).toBe(first.id);
    const { owner } = request;
    await runs.finish({ owner, runId: first.id, ending: { status: 'finished' } });
    expect(await runs.current(request)).toMatchObject({ id: second.id, status: 'queued' });
    expect(await runs.markRunning({ owner, runId: second.id })).toBe(true);
    await runs.finish({ owner, runId: second.id, ending: { status: 'aborted' } });
    expect(await runs.current(request)).toMatchObject({ id: second.id, status: 'aborted' });
  });

  it('start starts one run for 50 requests with the same key', async () => {
    const request = await newRequest(test);
    const idempotency = { key: 'k', bodyHash: 'h', expiresAt: Date.now() + 60_000 };
    const results = await Promise.all(
      Array.from({ length: 50 }, () => test.store.runs.start({ ...request, idempotency })),
    );
    const runs = results.filter((result) => result.state === 'started');
    expect(runs).toHaveLength(1);
    const runId = runs[0]?.run.id;
    expect(results.filter((result) => result.state === 'existing')).toEqual(
      Array(49).fill({ state: 'existing', runId }),
    );
    expect(await allMessages(test.store, request)).toHaveLength(1);
    const other = { ...idempotency, bodyHash: 'other' };
    expect(await test.store.runs.start({ ...request, idempotency: other })).toEqual({
      state: 'conflict',
    });
  });

  it('start does not claim a key if the session is unknown', async () => {
    const request = await newRequest(test);
    const idempotency = { key: 'k', bodyHash: 'h', expiresAt: Date.now() + 60_000 };
    const lost = { ...request, sessionId: 'unknown', idempotency };
    expect(await test.store.runs.start(lost)).toEqual({ state: 'unknown-session' });
    expect(await test.store.runs.start({ ...request, idempotency })).toMatchObject({
      state: 'started',
    });
  });
});

const interrupt: EndAbandoned = (run, frames) => {
  const content = frames.map(({ data }) => JSON.parse(data).content).join('');
  const done = { seq: run.lastSeq + 1, event: 'done', data: '{"status":"interrupted"}' };
  return { status: 'interrupted', message: { content, isComplete: false }, frames: [done] };
};

async function startAbandoned({ store }: TestStore) {
  const owner = newOwner();
  const { id: sessionId } = await store.sessions.create({ owner, oracleDid: 'did:key:zOracle' });
  const message = { content: 'hi' };
  const request = { owner, sessionId, requestId: 'request', status: 'running', message } as const;
  const result = await store.runs.start(request);
  if (result.state !== 'started') throw new Error(result.state);
  return { owner, sessionId, runId: result.run.id };
}

describe.each(engines)('RunStore.pruneFrames on %s', (engine) => {
  let now = 1_000_000;
  const test = useStore(engine, { clock: () => now });

  it('deletes only the logs of runs that ended long ago', async () => {
    const ended = await startAbandoned(test);
    const live = await startAbandoned(test);
    const frames = [{ seq: 1, event: 'message', data: '{"content":"x"}' }];
    for (const key of [ended, live]) await test.store.runs.appendFrames({ ...key, frames });
    const message = { content: 'x', isComplete: true };
    await test.store.runs.finish({ ...ended, ending: { status: 'finished', message } });
    const counts = async () =>
      Promise.all(
        [ended, live].map(
          async (key) => (await test.store.runs.frames({ ...key, after: 0 })).length,
        ),
      );
    await test.store.runs.pruneFrames({ endedBefore: now });
    expect(await counts()).toEqual([1, 1]);
    now += 1;
    await test.store.runs.pruneFrames({ endedBefore: now });
    expect(await counts()).toEqual([0, 1]);
    expect(await allMessages(test.store, ended)).toHaveLength(2);
  });
});

describe.each(engines)('RunStore.closeInterrupted on %s', (engine) => {
  async function runOfDeadProcess() {
    const { options, drop } = await createTestDatabase(engine);
    const database = await openDatabase(options);
    onTestFinished(async () => {
      await database.close();
      await drop();
    });
    const context = { database, clock: Date.now, newId: createIdSource(Date.now) };
    const dead = new RunStore(context, { id: 'dead', isKnownDead: () => false });
    const heir = { id: 'heir', isKnownDead: (id: string) => id === 'dead' };
    const owner = newOwner();
    const session = await new SessionStore(context).create({ owner, oracleDid: 'did:o' });
    const message = { content: 'hi' };
    const request = { owner, sessionId: session.id, requestId: 'r', message };
    await dead.start({ ...request, status: 'queued' });
    return { context, heir };
  }

  it('ends runs of a dead process at once, with the streamed text', async () => {
    const { context, heir } = await runOfDeadProcess();
    const closed = await new RunStore(context, heir).closeInterrupted(interrupt);
    expect(closed).toMatchObject([{ run: { status: 'interrupted' } }]);
  });
});
