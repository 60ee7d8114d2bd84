import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { replaceSleep, waitForAbort } from '../../../test/support/replaced-sleep.js';
import { createRecorder, type RecorderOptions } from '../../../test/support/test-active-run.js';
import { useStore } from '../../../test/support/test-database.js';
import { startTestRun } from '../../../test/support/test-runs.js';
import type { Run } from '../../store/runs/run.js';
import type { RunStore } from '../../store/runs/run-store.js';
import type { Store } from '../../store/store.js';
import { createNotStoredError, endInterrupted } from './run-end.js';
import { buildCacheInvalidation, buildDoneFrame, buildResumedFrame, RunLog } from './run-log.js';
import { FlushLoop, RunRecorder } from './run-recorder.js';

const silent = pino({ level: 'silent' });
const nextTick = () => new Promise<void>((resolve) => setImmediate(resolve));

type Ending = Parameters<RunRecorder['end']>[0];
type FinishRequest = Parameters<RunStore['finish']>[0];

/** A recorder of a new run, what its readers see, and what it reports to its turn. */
async function record(
  store: Store,
  { attempt, ...changes }: Partial<RecorderOptions> & { readonly attempt?: number } = {},
) {
  const { run: started, key, session } = await startTestRun(store);
  const run = { ...started, ...(attempt && { attempt }) };
  const log = new RunLog();
  const { runs } = store;
  const onUnstored = vi.fn();
  const onLost = vi.fn();
  const onPromoted = vi.fn();
  const recorder = createRecorder(run, {
    ...{ log, runs, onLost, onPromoted, settle: onUnstored, ...changes },
  });
  const seen = () => log.since(0).map(({ event }) => event);
  return { run, key, session, log, recorder, seen, onUnstored, onLost, onPromoted };
}

const text = (content: string) =>
  ({ event: 'message', data: { content, timestamp: '2030-01-01T00:00:00.000Z' } }) as const;

const finish = (recorder: RunRecorder, { runId, messageId }: Run, more: Partial<Ending> = {}) =>
  recorder.end(
    { status: 'finished', message: { content: 'all', isComplete: true }, ...more },
    buildDoneFrame({ runId, messageId, status: 'finished', text: 'all' }),
  );

const pause = (recorder: RunRecorder, { runId, messageId }: Run) =>
  recorder.pause(
    {
      ...{ interrupts: [], request: { message: 'hi' }, limit: 10 },
      end: { message: { content: 'half', isComplete: false } },
    },
    [buildDoneFrame({ runId, messageId, status: 'interrupted', text: 'half' })],
  );

/** A store that fails so many times to end or pause a run, and the endings that it was asked to store. */
function breakStore({ runs: working }: Store, error: unknown, failures = Number.POSITIVE_INFINITY) {
  const runs: RunStore = Object.create(working);
  const endings: FinishRequest['end'][] = [];
  let left = failures;
  const fail = async () => {
    await nextTick();
    left -= 1;
    if (left >= 0) throw error;
  };
  runs.finish = async (request) => {
    endings.push(request.end);
    await fail();
    return working.finish(request);
  };
  runs.pause = async (request) => {
    await fail();
    return working.pause(request);
  };
  const repair = () => {
    left = 0;
  };
  return { runs, endings, repair };
}

const connectionError = () => new Error('Connection terminated unexpectedly');
const fullDisk = () => Object.assign(new Error('disk full'), { code: 'ENOSPC' });
const corruption = () =>
  Object.assign(new Error('malformed'), { code: 'ERR_SQLITE_ERROR', errcode: 11 });

/** Ends the run as another host would that considers this one dead. */
const endElsewhere = ({ runs }: Store, run: Run) => runs.close(run, endInterrupted);

describe.each([
  ['end', finish, 'finished'],
  ['pause', pause, 'paused'],
] as const)('RunRecorder.%s while the store fails', (_, stop, status) => {
  const test = useStore('sqlite');
  const DELAYS = [200, 400, 800, 1600, 2000, 2000];

  it('waits longer before each attempt, 2 s at most, and warns once', async () => {
    const delays = replaceSleep(nextTick);
    const lines: { level: number; reason: string; runId: string }[] = [];
    const write = (line: string) => void lines.push(JSON.parse(line));
    const logger = pino({ level: 'debug' }, { write });
    const { runs } = breakStore(test.store, connectionError(), DELAYS.length);
    const { run, recorder } = await record(test.store, { runs, logger });
    expect(await stop(recorder, run)).toMatchObject({ runId: run.runId, status });
    expect(delays).toEqual(DELAYS);
    expect(lines.map(({ level }) => level)).toEqual([40, 20, 20, 20, 20, 20]);
    const { message: reason } = connectionError();
    for (const line of lines) expect(line).toMatchObject({ reason, runId: run.runId });
  });

  it('stops waiting when the host stops, with the error of the store', async () => {
    const delays = replaceSleep(waitForAbort);
    const error = connectionError();
    const { runs } = breakStore(test.store, error);
    const shutdown = new AbortController();
    const { run, log, recorder, seen } = await record(test.store, {
      ...{ runs, shutdown: shutdown.signal },
    });
    const stopping = stop(recorder, run);
    await expect.poll(() => delays).toEqual([200]);
    shutdown.abort();
    await expect(stopping).rejects.toBe(error);
    expect(seen()).toEqual(['message_cache_invalidation', 'done']);
    const signal = AbortSignal.timeout(5_000);
    expect(await log.read(2, signal).next()).toMatchObject({ done: true });
  });

  it('does not try again if another host has ended the run', async () => {
    const delays = replaceSleep(nextTick);
    const { run, recorder } = await record(test.store);
    await endElsewhere(test.store, run);
    await expect(stop(recorder, run)).rejects.toThrow('ended elsewhere');
    expect(delays).toEqual([]);
  });

  it('stops if the session of the run was deleted', async () => {
    const { run, session, recorder } = await record(test.store);
    await test.store.sessions.delete(session);
    await expect(stop(recorder, run)).rejects.toThrow('ended elsewhere');
  });
});

describe('RunRecorder.end with an end that cannot be stored', () => {
  const test = useStore('sqlite');

  it.each([
    ['the disk is full', fullDisk(), 1],
    ['the file is broken', corruption(), 1],
    ['the connection is lost', connectionError(), 0],
    ['a query is wrong', new Error('no such column'), 0],
    ['something is thrown that is not an error', 'text', 0],
  ])('shows the failure before the time limit only if it lasts: %s', async (_, error, count) => {
    replaceSleep(nextTick);
    const { runs } = breakStore(test.store, error, 3);
    const { run, recorder, onUnstored } = await record(test.store, { runs });
    expect(await finish(recorder, run)).toMatchObject({ status: count ? 'failed' : 'finished' });
    expect(onUnstored).toHaveBeenCalledTimes(count);
  });

  it('waits as long as the store works, although it takes longer than the time limit', async () => {
    const { run, recorder, onUnstored } = await record(test.store, {
      storeWaitMs: 20,
      runs: Object.assign(Object.create(test.store.runs), {
        isStoring: () => true,
        finish: async (request: FinishRequest) => {
          await sleep(200);
          return test.store.runs.finish(request);
        },
      }),
    });
    expect(await finish(recorder, run)).toMatchObject({ status: 'finished' });
    expect(onUnstored).not.toHaveBeenCalled();
  });

  it('keeps the warnings, the usage and the trace of the turn with the failure', async () => {
    replaceSleep(nextTick);
    const { runs, endings } = breakStore(test.store, fullDisk(), 1);
    const { run, recorder, log, onUnstored } = await record(test.store, { runs });
    const warnings = [{ code: 'w', message: 'left out' }];
    const usage = { input: 3, output: 2, cached: 1 };
    const trace = { firstTextMs: 7, spans: '[]' };
    const parts = [{ type: 'text', text: 'all' }] as const;
    const message = { content: 'all', isComplete: true, parts };
    await finish(recorder, run, { message, report: { warnings }, usage, trace });
    const error = { code: 'store_unavailable', message: expect.stringContaining('not be stored') };
    expect(onUnstored.mock.calls).toMatchObject([[{ warnings, error }]]);
    expect(endings.at(-1)).toMatchObject({
      status: 'failed',
      usage,
      report: { warnings, error: { ...error, retryAfterSeconds: 5 } },
      trace: { ...trace, cause: 'store_unavailable' },
      error: { kind: 'server', message: error.message },
      message: { content: 'all', parts, isComplete: false, error: { ...error, kind: 'server' } },
    });
    const [shown] = log.since(0);
    expect(shown?.event).toBe('error');
    expect(JSON.parse(shown?.data ?? '')).toMatchObject({
      error: error.message,
      timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
    });
  });

  it('ends the log when it shows the failure, long before that is stored', async () => {
    replaceSleep(nextTick);
    const { runs, repair } = breakStore(test.store, fullDisk());
    const { run, recorder, log, onUnstored } = await record(test.store, { runs });
    const ending = finish(recorder, run);
    await expect.poll(() => onUnstored).toHaveBeenCalledTimes(1);
    const signal = AbortSignal.timeout(5_000);
    const batches = [];
    for await (const batch of log.read(0, signal)) batches.push(batch.map(({ event }) => event));
    expect(batches).toEqual([['error', 'done']]);
    expect(signal.aborted).toBe(false);
    repair();
    await ending;
    expect(log.lastSeq).toBe(2);
  });

  it('shows one end only, even if another host has ended the run meanwhile', async () => {
    replaceSleep(nextTick);
    const { runs, repair } = breakStore(test.store, fullDisk());
    const { run, recorder, seen, onUnstored } = await record(test.store, { runs });
    const ending = finish(recorder, run);
    await expect.poll(() => onUnstored).toHaveBeenCalledTimes(1);
    await endElsewhere(test.store, run);
    repair();
    await expect(ending).rejects.toThrow('ended elsewhere');
    expect(seen()).toEqual(['error', 'done']);
  });

  it('shows no failure after the time limit if the end is stored before', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const { run, recorder, seen, onUnstored } = await record(test.store, { storeWaitMs: 20 });
    await finish(recorder, run);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(onUnstored).not.toHaveBeenCalled();
    expect(seen()).toEqual(['done']);
  });

  it('stores a call that ended meanwhile with the end, and does not flush it', async () => {
    replaceSleep(nextTick);
    const { runs, repair } = breakStore(test.store, connectionError());
    const flushes = new FlushLoop(runs, silent);
    const { run, session, recorder, onLost } = await record(test.store, { runs, flushes });
    const ending = finish(recorder, run);
    const adds = vi.spyOn(flushes, 'add');
    recorder.recordCall({ callId: 'late', tool: 'pay', outcome: 'done' });
    expect(adds).not.toHaveBeenCalled();
    repair();
    await ending;
    const stored = await test.store.activity.list({ ...session, limit: 10 });
    expect(stored).toMatchObject([{ toolCallId: 'late', tool: 'pay' }]);
    expect(onLost).not.toHaveBeenCalled();
  });

  it('takes a stored end for its own only if its status is that of the turn', async () => {
    const runs: RunStore = Object.create(test.store.runs);
    runs.finish = async () => undefined;
    const { run, recorder, onPromoted } = await record(test.store, { runs });
    runs.find = async () => ({ ...run, status: 'aborted', lastSeq: 1 });
    await expect(finish(recorder, run)).rejects.toThrow('ended elsewhere');
    expect(onPromoted).not.toHaveBeenCalled();
  });
});

describe('RunRecorder.end and the steps of the turn', () => {
  const test = useStore('sqlite');
  const step = { type: 'retry', path: '', callId: 'c' } as const;

  it.each([
    ['has none', 1, false, false],
    ['has stored one', 1, true, true],
    ['may have some of an earlier attempt', 2, false, true],
  ])('says to the store whether it %s', async (_, attempt, isAdded, hasSteps) => {
    const { runs, endings } = breakStore(test.store, undefined, 0);
    const { run, recorder } = await record(test.store, { runs, attempt });
    if (isAdded) {
      const journal = recorder.openJournal([], new Map());
      journal.add(step);
      await journal.commit();
    }
    await finish(recorder, run);
    expect(endings).toMatchObject([{ hasSteps }]);
    expect(await test.store.runs.steps(run)).toEqual([]);
  });

  it('a result is stored at once, with the steps before it; others wait for the next flush', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const flush = vi.spyOn(test.store.runs, 'flush');
    onTestFinished(() => flush.mockRestore());
    const { run, recorder } = await record(test.store);
    const journal = recorder.openJournal([], new Map());
    journal.add(step);
    await nextTick();
    expect(flush).not.toHaveBeenCalled();
    const call = { id: 'c', name: 'add', args: {}, status: 'done', output: '1' } as const;
    const result = { type: 'result', path: '', call } as const;
    journal.add(result);
    // Not `expect.poll`, which moves fake timers.
    while ((await test.store.runs.steps(run)).length < 2) await nextTick();
    expect(await test.store.runs.steps(run)).toEqual([step, result]);
    expect(flush).toHaveBeenCalledTimes(1);
  });

  it('a step that must be stored is tried again every 100 ms', async () => {
    const delays = replaceSleep(nextTick);
    const runs: RunStore = Object.create(test.store.runs);
    const flush = vi.fn(test.store.runs.flush.bind(test.store.runs));
    for (let i = 0; i < 3; i++) flush.mockRejectedValueOnce(connectionError());
    runs.flush = flush;
    const flushes = new FlushLoop(runs, silent);
    const { run, recorder } = await record(test.store, { runs, flushes });
    const journal = recorder.openJournal([], new Map());
    journal.add(step);
    await journal.commit();
    expect(await test.store.runs.steps(run)).toEqual([step]);
    expect(delays).toEqual([100, 100, 100]);
    await flushes.remove(recorder);
  });
});

describe('RunRecorder.take', () => {
  const test = useStore('sqlite');
  const step = (callId: string) => ({ type: 'retry', path: '', callId }) as const;

  it('takes each frame, step and call once, and in their order if they were put back', async () => {
    const { run, key, recorder } = await record(test.store);
    const journal = recorder.openJournal([], new Map());
    const add = (name: string) => {
      recorder.write(text(name));
      journal.add(step(name));
      recorder.recordCall({ callId: name, tool: 'add', outcome: 'done' });
    };
    add('a');
    const taken = recorder.take();
    expect(recorder.take()).toEqual({ ...key, frames: [], steps: [], activity: [] });
    add('b');
    recorder.putBack(taken);
    recorder.putBack({ ...key, frames: [], steps: [] });
    const { frames, steps, activity, ...rest } = recorder.take();
    expect(rest).toEqual(key);
    expect(frames.map(({ seq }) => seq)).toEqual([1, 2]);
    expect(steps).toEqual([
      { step: 1, value: step('a') },
      { step: 2, value: step('b') },
    ]);
    expect(activity?.map(({ toolCallId }) => toolCallId)).toEqual(['a', 'b']);
    expect(recorder.runId).toBe(run.runId);
  });
});

describe('RunRecorder.pause with its readers', () => {
  const test = useStore('sqlite');

  it('shows no failure of the end if the disk is full, and tries again', async () => {
    replaceSleep(nextTick);
    const { runs } = breakStore(test.store, fullDisk(), 2);
    const { run, recorder, seen, onUnstored } = await record(test.store, { runs });
    expect(await pause(recorder, run)).toMatchObject({ status: 'paused' });
    expect(seen()).toEqual(['done']);
    expect(onUnstored).not.toHaveBeenCalled();
  });

  it('leaves the log open for a run that was canceled instead', async () => {
    const { run, key, log, recorder } = await record(test.store);
    await test.store.runs.cancel(key, 'aborted');
    expect(await pause(recorder, run)).toBeUndefined();
    const reading = log.read(0, AbortSignal.timeout(5_000)).next();
    await nextTick();
    recorder.write(text('more'));
    expect(await reading).toMatchObject({ value: [{ seq: 1, event: 'message' }] });
    await finish(recorder, run);
  });
});

describe('what clients receive about a run that is stored differently than it was shown', () => {
  const test = useStore('sqlite');

  it('buildCacheInvalidation names the answer only if it is known', () => {
    const ids = { sessionId: 's', requestId: 'r' };
    const event = 'message_cache_invalidation';
    const data = { ...ids, status: 'done' };
    expect(buildCacheInvalidation(ids)).toEqual({ event, data });
    expect(buildCacheInvalidation(ids, 'm')).toEqual({
      ...{ event, data: { ...data, messageIds: ['m'] } },
    });
  });

  it('buildResumedFrame says which attempt follows, and how much of the text is kept', async () => {
    const { run } = await startTestRun(test.store);
    const { runId, sessionId, requestId } = run;
    expect(buildResumedFrame({ ...run, attempt: 2 }, 'half')).toEqual({
      event: 'run',
      data: { runId, sessionId, requestId, resumed: true, attempt: 2, partialLength: 4 },
    });
  });

  it('createNotStoredError invites a JSON caller to try again', () => {
    expect(createNotStoredError()).toMatchObject({
      code: 'store_unavailable',
      message: expect.stringContaining('Try again'),
      retryAfterSeconds: 5,
    });
  });
});
