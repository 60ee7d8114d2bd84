import { OracleError } from '@sibyl/protocol';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { useStore } from '../../test/support/test-database.js';
import { createQuestion } from '../../test/support/test-interrupts.js';
import { openTestSession, startTestRun } from '../../test/support/test-runs.js';
import {
  createTestTurns,
  createTurnRequest,
  type TestTurnsOptions,
  wrapRuns,
} from '../../test/support/test-turns.js';
import type { SessionKey } from '../bus/event-bus.js';
import type { RunStore } from '../store/runs/run-store.js';

const test = useStore('sqlite');

const createTurns = (options: TestTurnsOptions = {}) => createTestTurns(test.store, options);
const open = () => openTestSession(test.store);

/** The number of messages and the open turns of a session. */
async function countStored(session: SessionKey) {
  const messages = await test.store.messages.recent({
    ...session,
    branch: 0,
    throughTurn: 100,
    bytes: 10_000,
  });
  return { messages: messages.length, runs: (await test.store.runs.open(session)).length };
}

const NOTHING = { messages: 0, runs: 0 };

/** A host with room for one turn has it again. */
async function expectRoom({ turns }: ReturnType<typeof createTurns>) {
  expect([turns.hasRoom, turns.count()]).toEqual([true, { running: 0, queued: 0 }]);
  await expect(turns.start(createTurnRequest(await open()))).resolves.toEqual(expect.any(String));
  await turns.close(0, 60_000);
}

describe('Turns.start refuses', () => {
  it('a model that the host does not list, before gates are asked', async () => {
    const session = await open();
    const host = createTurns();
    const refused = host.turns.start(createTurnRequest(session, { model: 'unknown' }));
    await expect(refused).rejects.toMatchObject({
      code: 'validation_failed',
      lines: [expect.stringMatching(/^model: /)],
    });
    expect([host.asked, host.counts.taken]).toEqual([[], 0]);
    expect(await countStored(session)).toEqual(NOTHING);
  });

  it('a session of another user as unknown, before gates are asked', async () => {
    const { sessionId } = await open();
    const { owner } = await open();
    const host = createTurns({ max: 1 });
    const refused = host.turns.start(createTurnRequest({ owner, sessionId }));
    await expect(refused).rejects.toMatchObject({ code: 'session_not_found' });
    expect([host.asked, host.counts.taken]).toEqual([[], 0]);
    await expectRoom(host);
  });

  it('a turn that the access key does not permit, before gates are asked', async () => {
    const session = await open();
    const host = createTurns({ max: 1 });
    host.refusals.access = new OracleError('access_key_too_narrow');
    await expect(host.turns.start(createTurnRequest(session))).rejects.toBe(host.refusals.access);
    expect([host.asked, host.counts.returned]).toEqual([[], 0]);
    expect(await countStored(session)).toEqual(NOTHING);
    delete host.refusals.access;
    await expectRoom(host);
  });

  it('a turn that a gate refuses, which does not count for the access key', async () => {
    const session = await open();
    const host = createTurns({ max: 1 });
    host.refusals.gate = new OracleError('insufficient_credit');
    await expect(host.turns.start(createTurnRequest(session))).rejects.toBe(host.refusals.gate);
    expect(host.counts).toEqual({ settled: 0, taken: 1, returned: 1 });
    expect(await countStored(session)).toEqual(NOTHING);
    delete host.refusals.gate;
    await expectRoom(host);
  });

  it('a message that asks to be rejected while a turn runs, and settles its account', async () => {
    const session = await open();
    const host = createTurns();
    await host.turns.start(createTurnRequest(session));
    const refused = host.turns.start(createTurnRequest(session, { multitask: 'reject' }));
    await expect(refused).rejects.toMatchObject({ code: 'turn_running' });
    expect(host.counts).toEqual({ settled: 1, taken: 2, returned: 1 });
    expect(host.turns.count()).toEqual({ running: 1, queued: 0 });
    await host.turns.close(0, 60_000);
    await expect(host.turns.start(createTurnRequest(session))).rejects.toMatchObject({
      code: 'host_stopping',
    });
  });

  it('a message that a gate admits only after the host has begun to stop', async () => {
    const session = await open();
    const host = createTurns();
    let closed: Promise<boolean> | undefined;
    host.refusals.onGate = () => {
      closed = host.turns.close(0, 60_000);
    };
    const refused = host.turns.start(createTurnRequest(session));
    await expect(refused).rejects.toMatchObject({ code: 'host_stopping', retryAfterSeconds: 5 });
    expect(host.counts).toEqual({ settled: 1, taken: 1, returned: 1 });
    expect(await countStored(session)).toEqual(NOTHING);
    expect(await closed).toBe(true);
  });

  it('a turn that cannot be stored, even if it has begun while the disk writes', async () => {
    const session = await open();
    const runs = wrapRuns(test.store);
    runs.start = async (request) => {
      await test.store.runs.start(request);
      throw new Error('not on disk');
    };
    const host = createTurns({ runs, max: 1 });
    await expect(host.turns.start(createTurnRequest(session))).rejects.toThrow('not on disk');
    expect(host.counts).toMatchObject({ taken: 1, returned: 1 });
    await expect.poll(() => host.turns.listActive()).toEqual([]);
    const [job] = host.jobs.values();
    expect(await job?.outcome).toMatchObject({
      status: 'interrupted',
      error: { code: 'store_unavailable' },
    });
    delete (runs as Partial<RunStore>).start;
    await expectRoom(host);
  });
});

describe('Turns.start', () => {
  it('fails if the steps of earlier attempts cannot be read', async () => {
    const session = await open();
    const runs = wrapRuns(test.store);
    runs.steps = async () => {
      throw new Error('unreadable');
    };
    const start = async (request: Parameters<RunStore['start']>[0]) => {
      const { onCommit, ...rest } = request;
      const result = await test.store.runs.start(rest);
      if (result.state === 'started') onCommit?.({ ...result, run: { ...result.run, attempt: 2 } });
      return result;
    };
    runs.start = start;
    const host = createTurns({ runs, max: 1 });
    await expect(host.turns.start(createTurnRequest(session))).rejects.toThrow('unreadable');
    expect(host.counts).toEqual({ settled: 1, taken: 1, returned: 1 });
    // Also if the disk fails after that: the caller receives one error, and none is unhandled.
    const unhandled = vi.fn();
    process.on('unhandledRejection', unhandled);
    onTestFinished(() => void process.off('unhandledRejection', unhandled));
    runs.start = async (request) => {
      await start(request);
      await new Promise(setImmediate);
      throw new Error('not on disk');
    };
    await expect(host.turns.start(createTurnRequest(await open()))).rejects.toThrow('not on disk');
    expect(unhandled).not.toHaveBeenCalled();
    delete (runs as Partial<RunStore>).start;
    await expectRoom(host);
  });

  it('does not run a turn whose start failed while its steps were being read', async () => {
    const session = await open();
    const runs = wrapRuns(test.store);
    const reading = Promise.withResolvers<[]>();
    runs.steps = () => reading.promise;
    runs.start = async ({ onCommit, ...request }) => {
      const result = await test.store.runs.start(request);
      if (result.state === 'started') onCommit?.({ ...result, run: { ...result.run, attempt: 2 } });
      throw new Error('not on disk');
    };
    const host = createTurns({ runs, max: 1 });
    await expect(host.turns.start(createTurnRequest(session))).rejects.toThrow('not on disk');
    reading.resolve([]);
    await new Promise(setImmediate);
    await new Promise(setImmediate);
    expect([host.turns.listActive(), host.jobs.size]).toEqual([[], 0]);
  });

  it('asks gates about the user, the session, the length and the model of the message', async () => {
    const { owner, sessionId } = await open();
    const host = createTurns();
    const about = { owner, sessionId, requestId: 'request' };
    await host.turns.start(createTurnRequest({ owner, sessionId }));
    await host.turns.start(
      createTurnRequest({ owner, sessionId }, { model: 'large', message: 'longer' }),
    );
    expect(host.asked).toEqual([
      { ...about, model: 'scripted/model', length: 2 },
      { ...about, model: 'large', length: 6 },
    ]);
    await host.turns.close(0, 60_000);
  });

  it('returns the run of another host that was first with the same key, and keeps nothing', async () => {
    const session = await open();
    const runs = wrapRuns(test.store);
    runs.start = async () => ({ state: 'existing', runId: 'theirs' });
    const host = createTurns({ runs, max: 1 });
    expect(await host.turns.start(createTurnRequest(session, { idempotencyKey: 'key' }))).toBe(
      'theirs',
    );
    expect(host.counts).toEqual({ settled: 1, taken: 1, returned: 1 });
    delete (runs as Partial<RunStore>).start;
    await expectRoom(host);
  });

  it('stores the key of a request, so that its repetition finds the run', async () => {
    const session = await open();
    const host = createTurns();
    const request = createTurnRequest(session, { idempotencyKey: 'key' });
    const runId = await host.turns.start(request);
    expect(await host.turns.start(request)).toBe(runId);
    expect(host.asked).toHaveLength(1);
    await host.turns.close(0, 60_000);
  });

  it('answers a stored question again', async () => {
    const session = await open();
    const host = createTurns();
    const runId = await host.turns.start(createTurnRequest(session, { message: 'the question' }));
    const live = host.turns.findActive({ owner: session.owner, runId });
    host.finish(runId);
    await live?.outcome;
    const asked = await test.store.messages.recent({
      ...session,
      branch: 0,
      throughTurn: 1,
      bytes: 10_000,
    });
    const questionId = asked[0]?.id ?? '';
    const again = await host.turns.start(
      createTurnRequest(session, { message: '', origin: { questionId } }),
    );
    expect(host.jobs.get(again)?.request.message.message).toBe('the question');
    await host.turns.close(0, 60_000);
  });

  it('counts a turn as executing from its admission on', async () => {
    const session = await open();
    const runs = wrapRuns(test.store);
    runs.newId = () => crypto.randomUUID();
    const newId = vi.spyOn(runs, 'newId');
    const host = createTurns({ runs });
    const states: boolean[] = [];
    const isExecuting = () => host.turns.isExecuting(`${newId.mock.results[0]?.value}`);
    host.refusals.onGate = () => states.push(isExecuting());
    const runId = await host.turns.start(createTurnRequest(session));
    const live = host.turns.findActive({ owner: session.owner, runId });
    states.push(isExecuting());
    host.finish(runId);
    await live?.outcome;
    await expect.poll(() => isExecuting()).toBe(false);
    expect(states).toEqual([true, true]);
    expect(host.turns.isExecuting('unknown')).toBe(false);
  });

  it('cancels the turns that it interrupts, here and on other hosts', async () => {
    const [mine, theirs] = [await open(), await open()];
    const another = await test.another();
    const host = createTurns();
    const first = await host.turns.start(createTurnRequest(mine));
    const live = host.turns.findActive({ owner: mine.owner, runId: first });
    await host.turns.start(createTurnRequest(mine, { multitask: 'interrupt' }));
    expect(await live?.outcome).toMatchObject({
      status: 'interrupted',
      error: { code: 'turn_interrupted' },
    });
    expect(host.sent).not.toHaveBeenCalled();
    const { run } = await startTestRun(another, theirs);
    await host.turns.start(createTurnRequest(theirs, { multitask: 'interrupt' }));
    expect(host.sent.mock.calls).toEqual([
      [another.runs.hostId, 'run-canceled', { runId: run.runId, reason: 'interrupted' }],
    ]);
    await host.turns.close(0, 60_000);
  });

  it('begins the turn that waited for a paused one, which the message cancels', async () => {
    const session = await open();
    const { runs } = test.store;
    const { key } = await startTestRun(test.store, session);
    const paused = await runs.pause({
      ...key,
      interrupts: [createQuestion(crypto.randomUUID())],
      limit: 10,
      steps: [],
      request: {},
      end: { message: { content: '', isComplete: false } },
    });
    expect(paused.state).toBe('paused');
    const host = createTurns();
    const waiting = await host.turns.start(createTurnRequest(session, { waitsForPaused: true }));
    expect(host.turns.count()).toEqual({ running: 0, queued: 1 });
    await host.turns.start(createTurnRequest(session));
    await expect.poll(() => host.jobs.has(waiting)).toBe(true);
    await host.turns.interruptAll(session);
    await host.turns.close(0, 60_000);
  });
});
