import { pino } from 'pino';
import { describe, expect, it, vi } from 'vitest';
import { createRecorder, type RecorderOptions } from '../../../test/support/test-active-run.js';
import { engines, type TestStore, useStore } from '../../../test/support/test-database.js';
import { startTestRun } from '../../../test/support/test-runs.js';
import { endOfRun, MemoryEventBus, type ServerEvent } from '../../bus/event-bus.js';
import type { Run } from '../../store/runs/run.js';
import type { RunStore } from '../../store/runs/run-store.js';
import type { Store } from '../../store/store.js';
import { endInterrupted } from './run-end.js';
import { buildDoneFrame, buildRunFrame, RunLog, toUsageField } from './run-log.js';
import { FlushLoop, RunRecorder } from './run-recorder.js';

const logger = pino({ level: 'silent' });

/** Ends the run as a host does that has stopped the turn after some text. */
function interrupt(recorder: RunRecorder, { runId, messageId }: Run) {
  const status = 'interrupted';
  const message = { content: 'half', isComplete: false };
  return recorder.end(
    { status, message },
    buildDoneFrame({ runId, messageId, status, text: 'half' }),
  );
}

describe.each(engines)('RunRecorder.end on %s', (engine) => {
  const test = useStore(engine);

  it('does not take the end that another host has stored for its own', async () => {
    const { run } = await startTestRun(test.store);
    const recorder = createRecorder(run, { runs: test.store.runs });
    recorder.write(buildRunFrame(run));
    await test.store.runs.close(run, endInterrupted);
    await expect(interrupt(recorder, run)).rejects.toThrow('ended elsewhere');
  });

  it('finds its own end if the reply of the database was lost', async () => {
    const { run } = await startTestRun(test.store);
    const runs = Object.create(test.store.runs) as Store['runs'];
    let attempts = 0;
    runs.finish = async (request) => {
      attempts += 1;
      const ended = await test.store.runs.finish(request);
      if (attempts === 1) throw new Error('Connection terminated unexpectedly');
      return ended;
    };
    const recorder = createRecorder(run, { runs });
    recorder.write(buildRunFrame(run));
    expect(await interrupt(recorder, run)).toMatchObject({ status: 'interrupted', lastSeq: 2 });
    expect(attempts).toBe(2);
  });
});

/** A recorder of a new run, and what its readers and sockets see; `runs` can be replaced by a failing store. */
async function record({ store }: TestStore, changes: Partial<RecorderOptions> = {}) {
  const { run, key, session } = await startTestRun(store);
  const log = changes.log ?? new RunLog();
  const events = new MemoryEventBus();
  const published: ServerEvent[] = [];
  events.subscribe(session, (event) => published.push(event));
  const recorder = createRecorder(run, { runs: store.runs, log, events, ...changes });
  const seen = () => log.since(0).map(({ event, data }) => [event, JSON.parse(data)]);
  const stored = async () =>
    (await store.runs.frames({ ...key, after: 0 })).map(({ seq, event }) => `${seq} ${event}`);
  return { run, key, session, recorder, log, published, seen, stored };
}

const text = (content: string) =>
  ({ event: 'message', data: { content, timestamp: '2030-01-01T00:00:00.000Z' } }) as const;
const routing = ({ sessionId, requestId }: Run) =>
  ({ event: 'router_update', data: { sessionId, requestId, step: 'call' } }) as const;

/** Ends the run as finished. */
const finish = (recorder: RunRecorder, { runId, messageId }: Run) =>
  recorder.end(
    { status: 'finished', message: { content: 'all', isComplete: true } },
    buildDoneFrame({ runId, messageId, status: 'finished', text: 'all' }),
  );

const failing = (error: Error) => () => Promise.reject(error);
const connectionError = () => new Error('Connection terminated unexpectedly');

describe('RunRecorder.write', () => {
  const test = useStore('sqlite');

  it('shows a frame at once, to sockets only what they understand, and stores it soon', async () => {
    const { run, recorder, published, seen, stored } = await record(test);
    expect(recorder.write(text('a'))).toBeUndefined();
    const event = recorder.write(routing(run));
    expect(event).toMatchObject({ event: 'router_update', position: { turn: 1, seq: 2 } });
    expect(published).toEqual([event]);
    expect(seen().map(([name]) => name)).toEqual(['message', 'router_update']);
    await expect.poll(stored).toEqual(['1 message', '2 router_update']);
  });

  it('writes nothing once the run is ending', async () => {
    const { run, recorder, seen } = await record(test);
    const ending = finish(recorder, run);
    expect(recorder.write(text('late'))).toBeUndefined();
    await ending;
    expect(seen().map(([name]) => name)).toEqual(['done']);
  });

  it('stops a turn whose log has 64 MiB, which can still say why', async () => {
    const log = new RunLog();
    const bytes = vi.spyOn(log, 'bytes', 'get').mockReturnValue(64 * 1024 * 1024 - 1);
    const onFull = vi.fn();
    const { run, recorder, seen } = await record(test, { log, fail: onFull });
    recorder.write(text('a'));
    expect(onFull).not.toHaveBeenCalled();
    bytes.mockReturnValue(64 * 1024 * 1024);
    recorder.write(text('b'));
    expect(onFull.mock.calls).toEqual([[expect.objectContaining({ code: 'turn_too_long' })]]);
    const { sessionId, requestId } = run;
    const about = { sessionId, requestId, timestamp: '2030-01-01T00:00:00.000Z' };
    const data = { error: 'full', kind: 'server', retryable: false, ...about } as const;
    recorder.write({ event: 'error', data });
    expect(seen().map(([name]) => name)).toEqual(['message', 'error']);
    expect(onFull).toHaveBeenCalledTimes(1);
  });

  it('reports to its turn that the run was canceled or lost', async () => {
    const onCanceled = vi.fn();
    const onLost = vi.fn();
    const { run, key, recorder } = await record(test, { onCanceled, onLost });
    await test.store.runs.cancel(key, 'aborted');
    recorder.write(text('a'));
    await expect.poll(() => onCanceled.mock.calls).toEqual([[key.runId, 'aborted']]);
    expect(onLost).not.toHaveBeenCalled();
    await test.store.runs.close(run, endInterrupted);
    recorder.write(text('b'));
    await expect.poll(() => onLost.mock.calls.length).toBe(1);
  });

  it('recordCall stores which tools ran, also with the end of the run', async () => {
    const { run, session, recorder } = await record(test);
    recorder.recordCall({ callId: 'c1', tool: 'add', outcome: 'done' });
    const list = () => test.store.activity.list({ ...session, limit: 10 });
    await expect.poll(async () => (await list()).length).toBe(1);
    recorder.recordCall({ callId: 'c2', tool: 'pay', outcome: 'error' });
    await finish(recorder, run);
    expect((await list()).toReversed()).toMatchObject([
      {
        kind: 'tool_call',
        sessionId: run.sessionId,
        runId: run.runId,
        toolCallId: 'c1',
        outcome: 'done',
      },
      { kind: 'tool_call', toolCallId: 'c2', tool: 'pay', outcome: 'error' },
    ]);
  });
});

describe('RunRecorder.openJournal', () => {
  const test = useStore('sqlite');
  const call = { id: 'c', name: 'add', args: {}, status: 'done', output: '1' } as const;
  const intent = { type: 'retry', path: '', callId: 'c' } as const;
  const result = { type: 'result', path: '', call } as const;

  it('commit resolves when the steps are stored, in their order', async () => {
    const { run, recorder } = await record(test, { isResumable: true });
    const answers = new Map([['c', { status: 'expired' }]] as const);
    const journal = recorder.openJournal([result], answers);
    expect(journal).toMatchObject({ earlier: [result], isResumable: true });
    expect(journal.answers).toBe(answers);
    journal.add(intent);
    journal.add({ ...intent, callId: 'd' });
    await journal.commit();
    expect(await test.store.runs.steps(run)).toEqual([intent, { ...intent, callId: 'd' }]);
  });

  it('commit waits until the store is available', async () => {
    const runs = Object.create(test.store.runs) as RunStore;
    runs.flush = vi.fn(failing(connectionError()));
    const flushes = new FlushLoop(runs, logger);
    const { run, recorder } = await record(test, { runs, flushes });
    const journal = recorder.openJournal([], new Map());
    journal.add(intent);
    const isStored = vi.fn();
    const committing = journal.commit().then(isStored);
    await expect.poll(() => vi.mocked(runs.flush).mock.calls.length).toBeGreaterThan(1);
    expect(isStored).not.toHaveBeenCalled();
    runs.flush = test.store.runs.flush;
    await committing;
    expect(await test.store.runs.steps(run)).toEqual([intent]);
  });

  it('commit fails if another host has the run, if it ends, or if the host stops', async () => {
    const lost = await record(test);
    await test.store.runs.close(lost.run, endInterrupted);
    const lostJournal = lost.recorder.openJournal([], new Map());
    lostJournal.add(intent);
    await expect(lostJournal.commit()).rejects.toThrow('ended elsewhere');
    const ending = await record(test);
    await finish(ending.recorder, ending.run);
    await expect(ending.recorder.openJournal([], new Map()).commit()).rejects.toThrow('elsewhere');
    const runs = Object.create(test.store.runs) as RunStore;
    runs.flush = failing(connectionError());
    const shutdown = AbortSignal.abort(new Error('stopping'));
    const flushes = new FlushLoop(runs, logger);
    const stopped = await record(test, { runs, flushes, shutdown });
    const journal = stopped.recorder.openJournal([], new Map());
    journal.add(intent);
    await expect(journal.commit()).rejects.toThrow('stopping');
    await flushes.remove(stopped.recorder);
  });
});

describe('RunRecorder.end with its readers', () => {
  const test = useStore('sqlite');

  /** A store that refuses an end as finished until `repair` is called. */
  function breakStore(error: Error) {
    const runs = Object.create(test.store.runs) as RunStore;
    let isBroken = true;
    const attempts: string[] = [];
    runs.finish = async (request) => {
      attempts.push(request.end.status);
      await new Promise<void>((resolve) => setImmediate(resolve));
      if (isBroken) throw error;
      return test.store.runs.finish(request);
    };
    const repair = () => {
      isBroken = false;
    };
    return { runs, attempts, repair };
  }

  it('shows `done` when it is stored with all frames, and then starts the next turn', async () => {
    const onPromoted = vi.fn((next: Run) => next.runId);
    const runs = Object.create(test.store.runs) as RunStore;
    const mayStore = Promise.withResolvers<void>();
    runs.finish = async (request) => {
      await mayStore.promise;
      return test.store.runs.finish(request);
    };
    const { run, session, recorder, log, seen, stored } = await record(test, { runs, onPromoted });
    const waiting = await startTestRun(test.store, session);
    recorder.write(text('all'));
    const ending = finish(recorder, run);
    await new Promise<void>((resolve) => setImmediate(resolve));
    expect(seen().map(([name]) => name)).toEqual(['message']);
    mayStore.resolve();
    expect(await ending).toMatchObject({ status: 'finished', lastSeq: 2 });
    expect(seen().map(([name]) => name)).toEqual(['message', 'done']);
    expect(await stored()).toEqual(['1 message', '2 done']);
    expect(onPromoted.mock.calls.map(([next]) => next.runId)).toEqual([waiting.run.runId]);
    // The log is closed: a reader ends.
    const frames = [];
    for await (const batch of log.read(0, new AbortController().signal)) frames.push(...batch);
    expect(frames).toHaveLength(2);
  });

  it('leaves the next turn to other hosts if this one takes no more', async () => {
    const { run, session, recorder } = await record(test, { takesNext: () => false });
    const waiting = await startTestRun(test.store, session);
    await finish(recorder, run);
    const next = await test.store.runs.find(waiting.key);
    expect([next?.status, next?.startedAt]).toEqual(['running', undefined]);
  });

  it('shows a failure if storing takes too long, and stores that failure later', async () => {
    const { runs, attempts, repair } = breakStore(connectionError());
    const onUnstored = vi.fn();
    const { run, recorder, published, seen, stored, key } = await record(test, {
      ...{ runs, settle: onUnstored, storeWaitMs: 20 },
    });
    recorder.write(text('all'));
    const ending = finish(recorder, run);
    await expect.poll(() => onUnstored.mock.calls.length).toBe(1);
    expect(onUnstored.mock.calls[0]?.[0]).toMatchObject({
      ...{ status: 'failed', messageId: undefined, text: '', warnings: [] },
      error: { code: 'store_unavailable', retryAfterSeconds: 5 },
    });
    const { sessionId, requestId, messageId, runId } = run;
    expect(seen().slice(1)).toMatchObject([
      ['error', { kind: 'server', retryable: true, sessionId, requestId }],
      ['done', { runId, messageId, status: 'failed', failed: true, partialText: 'all' }],
    ]);
    expect(published).toEqual([]);
    repair();
    await ending;
    expect(attempts[0]).toBe('finished');
    expect(attempts.at(-1)).toBe('failed');
    expect(await stored()).toEqual(['1 message', '2 error', '3 done']);
    expect(await test.store.runs.find(key)).toMatchObject({
      status: 'failed',
      error: { kind: 'server' },
      report: { error: { code: 'store_unavailable' } },
    });
    const message = await test.store.messages.find({ owner: run.owner, messageId });
    const reason = { status: 'failed', code: 'store_unavailable', kind: 'server' };
    expect(message).toMatchObject({ content: 'all', isComplete: false, error: reason });
    // Pages that show the session reload it.
    expect(published).toMatchObject([
      {
        event: 'message_cache_invalidation',
        payload: { sessionId, messageIds: [messageId], status: 'done' },
        position: endOfRun(run),
      },
    ]);
    expect(onUnstored).toHaveBeenCalledTimes(1);
  });

  it.each([
    ['the disk is full', Object.assign(new Error('disk full'), { code: 'ENOSPC' }), false],
    ['this host has stopped its turns', connectionError(), true],
  ])('shows the failure at once if %s', async (_, error, isLost) => {
    const { runs, repair } = breakStore(error);
    const onUnstored = vi.fn();
    const { run, recorder } = await record(test, {
      runs,
      settle: onUnstored,
      isStoreLost: () => isLost,
    });
    const ending = finish(recorder, run);
    // Long before the 10 s that readers wait otherwise.
    await expect.poll(() => onUnstored.mock.calls.length, { timeout: 5_000 }).toBe(1);
    repair();
    expect(await ending).toMatchObject({ status: 'failed' });
  });

  it('fails with the error of the store if the host stops', async () => {
    const error = connectionError();
    const { runs, attempts } = breakStore(error);
    const { run, recorder, seen } = await record(test, { runs, shutdown: AbortSignal.abort() });
    await expect(finish(recorder, run)).rejects.toBe(error);
    expect(attempts).toEqual(['finished']);
    expect(seen().at(-1)).toMatchObject(['done', { status: 'interrupted' }]);
  });

  it('makes readers reload a run that another host has ended', async () => {
    const { run, recorder, log, published, seen } = await record(test);
    await test.store.runs.close(run, endInterrupted);
    await expect(finish(recorder, run)).rejects.toThrow('ended elsewhere');
    const { sessionId, requestId, runId } = run;
    const changed = { sessionId, requestId, status: 'done' };
    expect(seen()).toEqual([
      ['message_cache_invalidation', changed],
      ['done', { runId, status: 'interrupted', interrupted: true, partialText: 'all' }],
    ]);
    expect(published).toMatchObject([{ event: 'message_cache_invalidation', payload: changed }]);
    expect(await log.read(2, new AbortController().signal).next()).toMatchObject({ done: true });
  });

  it('finds the next turn if the reply of the database to the end was lost', async () => {
    const onPromoted = vi.fn((next: Run) => next.runId);
    const runs = Object.create(test.store.runs) as RunStore;
    runs.finish = async (request) => {
      await test.store.runs.finish(request);
      return undefined;
    };
    const { run, session, recorder } = await record(test, { runs, onPromoted });
    const waiting = await startTestRun(test.store, session);
    expect(await finish(recorder, run)).toMatchObject({ runId: run.runId, status: 'finished' });
    expect(onPromoted.mock.calls.map(([next]) => next.runId)).toEqual([waiting.run.runId]);
    const last = await record(test, { runs, onPromoted });
    await finish(last.recorder, last.run);
    expect(onPromoted).toHaveBeenCalledTimes(1);
  });
});

describe('RunRecorder.pause', () => {
  const test = useStore('sqlite');

  const pause = (recorder: RunRecorder, run: Run, limit = 10) =>
    recorder.pause(
      {
        ...{ interrupts: [], request: { message: 'hi' }, limit },
        end: { message: { content: 'half', isComplete: false } },
      },
      [
        routing(run),
        buildDoneFrame({ runId: run.runId, messageId: 'm', status: 'interrupted', text: 'half' }),
      ],
    );

  it('stores the run with its unstored frames and steps, then shows the last ones', async () => {
    const { run, recorder, log, published, seen, stored } = await record(test);
    recorder.write(text('half'));
    const step = { type: 'retry', path: '', callId: 'c' } as const;
    recorder.openJournal([], new Map()).add(step);
    recorder.recordCall({ callId: 'c', tool: 'add', outcome: 'done' });
    expect(await pause(recorder, run)).toMatchObject({
      runId: run.runId,
      status: 'paused',
      lastSeq: 3,
    });
    expect(await stored()).toEqual(['1 message', '2 router_update', '3 done']);
    expect(seen().map(([name]) => name)).toEqual(['message', 'router_update', 'done']);
    expect(published).toMatchObject([
      { event: 'router_update', position: { turn: run.turn, seq: 2 } },
    ]);
    expect(await test.store.runs.steps(run)).toEqual([step]);
    expect(await test.store.activity.list({ owner: run.owner, limit: 10 })).toHaveLength(1);
    expect(recorder.write(text('late'))).toBeUndefined();
    expect(await log.read(3, new AbortController().signal).next()).toMatchObject({ done: true });
  });

  it('does not pause a run that was canceled, which then continues to its end', async () => {
    const onCanceled = vi.fn();
    const { run, key, recorder, seen, stored } = await record(test, { onCanceled });
    recorder.write(text('half'));
    await test.store.runs.cancel(key, 'aborted');
    expect(await pause(recorder, run)).toBeUndefined();
    // Also by a flush, if it is first.
    expect(onCanceled).toHaveBeenCalledWith(key.runId, 'aborted');
    expect(seen().map(([name]) => name)).toEqual(['message']);
    recorder.write(text('more'));
    await finish(recorder, run);
    expect(await stored()).toEqual(['1 message', '2 message', '3 done']);
  });

  it('does not pause a run if the user has too many', async () => {
    const onCanceled = vi.fn();
    const { run, key, recorder } = await record(test, { onCanceled });
    expect(await pause(recorder, run, 0)).toBeUndefined();
    expect(onCanceled).not.toHaveBeenCalled();
    expect(await test.store.runs.find(key)).toMatchObject({ status: 'running' });
  });

  it('makes readers reload a run that another host has ended', async () => {
    const { run, recorder, seen } = await record(test);
    await test.store.runs.close(run, endInterrupted);
    await expect(pause(recorder, run)).rejects.toThrow('ended elsewhere');
    expect(seen()).toMatchObject([
      ['message_cache_invalidation', { status: 'done' }],
      ['done', { status: 'interrupted', partialText: 'half' }],
    ]);
  });

  it('tries again while the store is unavailable, and finds its own pause if the reply was lost', async () => {
    const runs = Object.create(test.store.runs) as RunStore;
    let attempts = 0;
    runs.pause = async (request) => {
      attempts += 1;
      if (attempts > 1) return test.store.runs.pause(request);
      await test.store.runs.pause(request);
      throw connectionError();
    };
    const { run, recorder, seen } = await record(test, { runs });
    expect(await pause(recorder, run)).toMatchObject({ runId: run.runId, status: 'paused' });
    expect(attempts).toBe(2);
    expect(seen().map(([name]) => name)).toEqual(['router_update', 'done']);
  });
});

describe('the last frame of a run', () => {
  const ids = { runId: 'run', messageId: 'message' };

  it('buildDoneFrame contains the text only of an incomplete answer', () => {
    const finished = buildDoneFrame({ ...ids, status: 'finished', text: 'all' });
    expect(finished).toEqual({ event: 'done', data: { ...ids, status: 'finished' } });
    const pending = [{ id: 'q', kind: 'confirmation' }] as const;
    const fields = { runId: 'run', messageId: undefined, status: 'interrupted', text: '' } as const;
    expect(buildDoneFrame({ ...fields, pending }).data).toEqual({
      ...{ runId: 'run', status: 'interrupted', interrupted: true, partialText: '', pending },
    });
  });

  it('toUsageField is empty if no model was called, and has a cost only if there are prices', () => {
    expect(toUsageField(undefined)).toEqual({});
    expect(toUsageField({ input: 0, output: 0, cached: 0, cost: 1 })).toEqual({});
    expect(toUsageField({ input: 0, output: 2, cached: 0 })).toEqual({
      usage: { inputTokens: 0, outputTokens: 2, cachedTokens: 0 },
    });
    expect(toUsageField({ input: 2, output: 0, cached: 1, cost: 0 })).toEqual({
      usage: { inputTokens: 2, outputTokens: 0, cachedTokens: 1, cost: 0 },
    });
  });
});
