import { describe, expect, it } from 'vitest';
import { allMessages } from '../../../test/support/all-messages.js';
import { newOwner, useStore } from '../../../test/support/test-database.js';
import {
  createRunRequest,
  expectStarted,
  finishTestRun,
  openTestSession,
  type RunRequest,
  startTestRun,
} from '../../../test/support/test-runs.js';
import type { RunKey } from '../schema/runs.js';
import type { StartResult } from './run-store.js';

type Session = Awaited<ReturnType<typeof openTestSession>>;

describe('what RunStore.start stores', () => {
  const now = 1_000_000;
  const test = useStore('sqlite', { clock: () => now });

  it('a run begins with the values of its request and without any result', async () => {
    const { runs } = test.store;
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const { run, key, session } = await startTestRun(test.store, { requestId: 'r', traceparent });
    const expected = {
      ...{ runId: run.runId, ...session, requestId: 'r', traceparent },
      ...{ turn: 1, branch: 0, attempt: 1 },
      ...{ status: 'running', hostId: runs.hostId, cancelReason: undefined },
      ...{ createdAt: now, startedAt: now, updatedAt: now, lastSeq: 0 },
      ...{ messageId: expect.stringMatching(/.+/), report: {} },
      usage: { input: 0, output: 0, cached: 0 },
    };
    expect(run).toEqual(expected);
    expect(await runs.find(key)).toEqual(expected);
    const { run: waiting } = await startTestRun(test.store, session);
    expect(waiting).toMatchObject({ status: 'queued', turn: 2, hostId: runs.hostId });
    expect([waiting.startedAt, waiting.traceparent]).toEqual([undefined, undefined]);
  });

  it('the request is stored for another host if the run waits or may be resumed', async () => {
    const { runs } = test.store;
    const { key, session } = await startTestRun(test.store);
    expect(await runs.request(key)).toBeUndefined();
    const waiting = await startTestRun(test.store, session);
    expect(await runs.request(waiting.key)).toEqual({ message: 'hi' });
    const resumable = await startTestRun(test.store, { isResumable: true });
    expect(resumable.run.status).toBe('running');
    expect(await runs.request(resumable.key)).toEqual({ message: 'hi' });
  });

  it('the ids that a client gave the message find it in its session', async () => {
    const session = await openTestSession(test.store);
    await startTestRun(test.store, { ...session, clientIds: ['client 1', 'client 2'] });
    const [question] = await allMessages(test.store, session);
    const ids = ['client 1', 'client 2', 'client 3'];
    const found = await test.store.threads.messages(session, ids);
    expect([...found].map(([id, message]) => [id, message.id])).toEqual([
      ['client 1', question?.id],
      ['client 2', question?.id],
    ]);
  });

  it('the result is announced once it is visible to others', async () => {
    const session = await openTestSession(test.store);
    const announced: StartResult[] = [];
    const onCommit = (result: StartResult) => void announced.push(result);
    const result = await test.store.runs.start(createRunRequest({ ...session, onCommit }));
    expect(announced).toEqual([result]);
  });

  it('a message that continues from an unknown one is refused, and nothing of it is stored', async () => {
    const { runs } = test.store;
    const { session } = await startTestRun(test.store);
    const origin = { parentId: 'unknown' };
    expect(await runs.start(createRunRequest({ ...session, origin }))).toEqual({
      state: 'unknown-message',
    });
    expect(await allMessages(test.store, session)).toHaveLength(1);
    expect(await runs.open(session)).toHaveLength(1);
  });

  it('an error of the store is thrown, not reported as a refusal', async () => {
    const { run, session } = await startTestRun(test.store);
    const again = createRunRequest({ ...session, runId: run.runId });
    await expect(test.store.runs.start(again)).rejects.toThrow(/constraint/i);
  });
});

describe('how RunStore.start admits messages', () => {
  const test = useStore('sqlite');

  const start = (session: Session, overrides: Partial<RunRequest> = {}) =>
    test.store.runs.start(createRunRequest({ ...session, ...overrides }));

  async function openAnother({ owner }: Session): Promise<Session> {
    const { sessions } = test.store;
    const { sessionId } = await sessions.create({ owner, oracleDid: 'did:key:zOracle' });
    return { owner, sessionId };
  }

  const pause = (key: RunKey) =>
    test.store.runs.pause({
      ...{ ...key, interrupts: [], limit: 10, steps: [], request: {} },
      end: { message: { content: '', isComplete: false } },
    });

  it('canceled turns do not count, until there are twice as many turns as the limit', async () => {
    const session = await openTestSession(test.store);
    const limits = { live: 2, waiting: 10 };
    const first = expectStarted(await start(session, { limits }));
    expectStarted(await start(session, { limits }));
    expect(await start(session, { limits })).toEqual({ state: 'too-many' });
    const third = await start(session, { limits, multitask: 'interrupt' });
    expectStarted(third);
    expect(third).toMatchObject({ canceled: [{ runId: first.runId, cancelReason: null }, {}] });
    // Two of three are canceled.
    expectStarted(await start(session, { limits }));
    expect(await start(session, { limits, multitask: 'interrupt' })).toEqual({ state: 'too-many' });
  });

  it('turns of other sessions count for the limit of the user, also if the message interrupts', async () => {
    const session = await openTestSession(test.store);
    const other = await openAnother(session);
    const limits = { live: 1, waiting: 0 };
    expectStarted(await start(other, { limits }));
    expect(await start(session, { limits, multitask: 'interrupt' })).toEqual({ state: 'too-many' });
    const more = { live: 2, waiting: 0 };
    const started = await start(session, { limits: more, multitask: 'reject' });
    expect(started).toMatchObject({ state: 'started', canceled: [], run: { status: 'running' } });
  });

  it('turns of other users neither count nor wait', async () => {
    await start(await openTestSession(test.store));
    const session = await openTestSession(test.store);
    const limits = { live: 1, waiting: 0 };
    const started = await start(session, { limits, multitask: 'reject' });
    expect(expectStarted(started).status).toBe('running');
  });

  it('a session whose turns are canceled is not busy', async () => {
    const { runs } = test.store;
    const { key, session } = await startTestRun(test.store);
    expect(await start(session, { multitask: 'reject' })).toEqual({ state: 'busy' });
    await runs.cancel(key, 'aborted');
    const next = await start(session, { multitask: 'reject' });
    // Its host has not ended the canceled one yet.
    expect(expectStarted(next).status).toBe('queued');
    expect(next).toMatchObject({ canceled: [] });
  });

  it('a paused turn neither counts nor makes its session busy, and the new message replaces it', async () => {
    const { runs } = test.store;
    const { key, session } = await startTestRun(test.store);
    await pause(key);
    const limits = { live: 1, waiting: 0 };
    const next = await start(session, { multitask: 'reject', limits });
    expect(next).toMatchObject({ state: 'started', canceled: [], run: { status: 'running' } });
    if (next.state !== 'started') throw new Error(next.state);
    expect(next.next).toBeUndefined();
    expect(await runs.find(key)).toMatchObject({ status: 'interrupted' });
  });

  it('a paused turn whose attempt is newer than the message that waits for it is found and ended', async () => {
    const { runs } = test.store;
    const { run, session } = await startTestRun(test.store);
    const waiting = await startTestRun(test.store, session);
    const next = await runs.resume(run, []);
    if (!next) throw new Error('not resumed');
    const key = { owner: run.owner, runId: next.runId };
    expect(await pause(key)).toMatchObject({ state: 'paused' });
    const last = await start(session);
    expect(last).toMatchObject({ run: { status: 'queued' }, next: { runId: waiting.run.runId } });
    expect(await runs.find(key)).toMatchObject({ status: 'interrupted' });
    expect(await runs.find(waiting.key)).toMatchObject({ status: 'running' });
  });

  it('a message that interrupts reports no paused turn to its host, since it has none', async () => {
    const { key, session } = await startTestRun(test.store);
    await pause(key);
    const next = await start(session, { multitask: 'interrupt' });
    expect(next).toMatchObject({ state: 'started', canceled: [], run: { status: 'running' } });
  });

  it('a message that waits for the paused turn does not end it', async () => {
    const { runs } = test.store;
    const { key, session } = await startTestRun(test.store);
    await pause(key);
    const waiting = await start(session, { waitsForPaused: true });
    expect(waiting).toMatchObject({ run: { status: 'queued' }, canceled: [] });
    if (waiting.state !== 'started') throw new Error(waiting.state);
    expect(waiting.next).toBeUndefined();
    expect(await runs.find(key)).toMatchObject({ status: 'paused' });
  });
});

describe('how RunStore.start repeats a request', () => {
  let now = 1_000_000;
  const test = useStore('sqlite', { clock: () => now });
  const idempotency = { key: 'k', bodyHash: 'h', expiresAt: 10_000_000 };

  const repeat = (session: Session, overrides: Partial<RunRequest> = {}) =>
    test.store.runs.start(createRunRequest({ ...session, idempotency, ...overrides }));

  async function failOnce(): Promise<Awaited<ReturnType<typeof startTestRun>>> {
    const started = await startTestRun(test.store, { idempotency });
    await finishTestRun(test.store.runs, started.key, {
      status: 'failed',
      error: { kind: 'server', message: 'overloaded' },
      report: { error: { code: 'model_unavailable', message: 'Later', retryAfterSeconds: 5 } },
      usage: { input: 1, output: 1, cached: 1 },
    });
    return started;
  }

  it('the next attempt has the id of the repeated request and nothing of the failed one', async () => {
    const { run, session } = await failOnce();
    now += 10;
    const { runs } = await test.another();
    const id = crypto.randomUUID();
    const again = await runs.start(createRunRequest({ ...session, idempotency, runId: id }));
    const times = { createdAt: now, startedAt: now, updatedAt: now };
    expect(again).toEqual({
      state: 'started',
      canceled: [],
      run: { ...run, ...times, runId: id, attempt: 2, hostId: runs.hostId },
    });
    const key = { owner: session.owner, runId: id };
    expect(await runs.find(key)).toEqual({
      ...run,
      ...times,
      runId: id,
      attempt: 2,
      hostId: runs.hostId,
    });
    expect(await runs.request(key)).toBeUndefined();
  });

  it('the request of the next attempt is stored if it may be resumed', async () => {
    const { session } = await failOnce();
    const again = await repeat(session, { isResumable: true, request: { message: 'repeated' } });
    const key = { owner: session.owner, runId: expectStarted(again).runId };
    expect(await test.store.runs.request(key)).toEqual({ message: 'repeated' });
  });

  it('the next attempt counts for the limits of the user', async () => {
    const { session } = await failOnce();
    const { sessions } = test.store;
    const { owner } = session;
    const { sessionId } = await sessions.create({ owner, oracleDid: 'did:key:zOracle' });
    await startTestRun(test.store, { owner, sessionId });
    const limits = { live: 1, waiting: 0 };
    expect(await repeat(session, { limits })).toEqual({ state: 'too-many' });
    expectStarted(await repeat(session, { limits: { live: 2, waiting: 0 } }));
  });

  it('a key whose session was deleted returns the first run', async () => {
    const { run, session } = await startTestRun(test.store, { idempotency });
    await test.store.sessions.delete(session);
    expect(await repeat(session)).toEqual({ state: 'existing', runId: run.runId });
  });

  it('the key of one user is unknown to others', async () => {
    await failOnce();
    const other = await openTestSession(test.store);
    expect(expectStarted(await repeat(other))).toMatchObject({ attempt: 1, owner: other.owner });
  });
});

describe('what RunStore.withdraw stores', () => {
  let now = 1_000_000;
  const test = useStore('sqlite', { clock: () => now });

  it('a withdrawn run has ended with an error that says so, and its request is removed', async () => {
    const { runs } = test.store;
    const { session } = await startTestRun(test.store);
    const { key } = await startTestRun(test.store, session);
    now += 5;
    expect(await runs.withdraw(key)).toEqual({ state: 'withdrawn', run: await runs.find(key) });
    expect(await runs.find(key)).toMatchObject({
      status: 'aborted',
      updatedAt: now,
      report: { error: { code: 'message_withdrawn', message: expect.stringMatching(/.+/) } },
    });
    expect(await runs.request(key)).toBeUndefined();
    expect(await runs.withdraw({ ...key, owner: newOwner() })).toEqual({ state: 'unknown' });
  });

  it('the message after it continues from the answer before it', async () => {
    const { runs } = test.store;
    const { run, session } = await startTestRun(test.store);
    const { key } = await startTestRun(test.store, session);
    await startTestRun(test.store, session);
    await runs.withdraw(key);
    const messages = await allMessages(test.store, session);
    expect(messages.map(({ turn, parent }) => [turn, parent])).toEqual([
      [1, undefined],
      [3, run.messageId],
    ]);
  });

  it('the question of an answer that is given again stays', async () => {
    const { runs } = test.store;
    const { key, session } = await startTestRun(test.store);
    await finishTestRun(runs, key, { content: 'hello' });
    const [question] = await allMessages(test.store, session);
    await startTestRun(test.store, session);
    const origin = { questionId: question?.id ?? '' };
    const again = await startTestRun(test.store, { ...session, origin });
    expect(again.run.status).toBe('queued');
    expect(await runs.withdraw(again.key)).toMatchObject({ state: 'withdrawn' });
    expect((await allMessages(test.store, session)).map(({ content }) => content)).toEqual([
      'hi',
      'hello',
      'hi',
    ]);
  });
});
