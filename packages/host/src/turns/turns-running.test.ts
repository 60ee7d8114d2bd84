import { OracleError } from '@sibyl/protocol';
import { describe, expect, it, vi } from 'vitest';
import { useStore } from '../../test/support/test-database.js';
import { createQuestion } from '../../test/support/test-interrupts.js';
import { openTestSession, startTestRun } from '../../test/support/test-runs.js';
import {
  closeTurns,
  createTestTurns,
  createTurnRequest,
  startTwoTurns,
  type TestTurnsOptions,
  wrapRuns,
} from '../../test/support/test-turns.js';
import type { RunKey } from '../store/schema/runs.js';
import { endInterrupted } from './run/run-end.js';
import { hostStopping } from './start/turn-limits.js';

const test = useStore('sqlite');
const TIME = '2030-01-01T00:00:00.000Z';

const createTurns = (options: TestTurnsOptions = {}) => createTestTurns(test.store, options);
const open = () => openTestSession(test.store);

const startTwo = (options: TestTurnsOptions = {}) => startTwoTurns(test.store, options);

const find = (key: RunKey) => test.store.runs.find(key);

const STORE_AWAY = { code: 'store_unavailable' };

describe('a turn of this host', () => {
  it('can be found by its owner only, until it has ended', async () => {
    const { turns, first, second, finish } = await startTwo();
    const { owner } = await open();
    expect(turns.findActive(second)?.run.runId).toBe(second.runId);
    expect(turns.findActive({ ...second, owner })).toBeUndefined();
    expect(turns.listActive().map(({ runId: id }) => id)).toEqual([first.runId, second.runId]);
    expect(turns.isExecuting(second.runId)).toBe(false);
    finish(first.runId);
    await expect.poll(() => turns.findActive(first)).toBeUndefined();
    await closeTurns({ turns });
  });

  it('whose end the runner could not store fails, and frees its slot', async () => {
    const session = await open();
    const host = createTurns({ max: 1 });
    const runId = await host.turns.start(createTurnRequest(session));
    const live = host.turns.findActive({ owner: session.owner, runId });
    host.state.error = new Error('not stored');
    host.finish(runId);
    expect(await live?.outcome).toMatchObject({
      ...{ status: 'failed', messageId: undefined, text: '', warnings: [] },
      error: STORE_AWAY,
    });
    await expect.poll(() => host.turns.hasRoom).toBe(true);
    expect(host.turns.listActive()).toEqual([]);
    expect(host.changes).toEqual(['turn_started', 'turn_ended']);
    expect(host.lines).toMatchObject([{ level: 50, runId }]);
  });

  it('sends its frames to a host that watches it, but not to one that asked too early', async () => {
    const session = await open();
    const runs = wrapRuns(test.store);
    const runId = crypto.randomUUID();
    runs.newId = () => runId;
    const { bus, sent, turns, jobs, finish } = createTurns({ runs });
    bus.send(bus.hostId, 'run-watch', { runId });
    await Promise.resolve();
    await turns.start(createTurnRequest(session));
    const live = jobs.get(runId);
    const recorder = live?.recorder;
    const write = (content: string) =>
      recorder?.write({ event: 'message', data: { content, timestamp: TIME } });
    write('unwatched');
    await new Promise(setImmediate);
    bus.send(bus.hostId, 'run-watch', { runId });
    await Promise.resolve();
    write('watched');
    finish(runId);
    await live?.outcome;
    const frames = () =>
      sent.mock.calls.flatMap(([, topic, payload]) => (topic === 'run-frames' ? [payload] : []));
    await expect.poll(() => frames()).toHaveLength(2);
    expect(frames()).toMatchObject([
      { runId, frames: [[3, 'message', expect.stringContaining('watched')]] },
      { runId, frames: [[4, 'done', expect.any(String)]] },
    ]);
  });

  it('fails when its log is full', async () => {
    const session = await open();
    const host = createTurns();
    const runId = await host.turns.start(createTurnRequest(session));
    const live = host.jobs.get(runId);
    const recorder = live?.recorder;
    live?.log.load([{ seq: 2, event: 'message', data: 'x'.repeat(64 * 1024 * 1024) }]);
    recorder?.write({ event: 'message', data: { content: 'more', timestamp: TIME } });
    expect(await live?.outcome).toMatchObject({
      status: 'failed',
      error: { code: 'turn_too_long' },
    });
  });

  it('ends when the store says that it was canceled or taken over', async () => {
    const onFlush = vi.fn();
    const { turns, first, session, jobs } = await startTwo({ onFlush });
    const live = turns.findActive(first);
    const other = await open();
    const taken = { owner: other.owner, runId: await turns.start(createTurnRequest(other)) };
    const lost = turns.findActive(taken);
    await test.store.runs.cancel(first, 'interrupted');
    const run = await find(taken);
    if (run) await test.store.runs.close(run, endInterrupted);
    // They learn it with what they store next.
    const part = { event: 'message', data: { content: 'more', timestamp: TIME } } as const;
    for (const { runId } of [first, taken]) jobs.get(runId)?.recorder.write(part);
    const canceled = { status: 'interrupted', error: { code: 'turn_interrupted' } };
    expect(await live?.outcome).toMatchObject(canceled);
    // Its end cannot be stored: another host has done that.
    expect(await lost?.outcome).toMatchObject({ status: 'failed', error: STORE_AWAY });
    expect(lost?.cancelReason).toBe('interrupted');
    expect(onFlush).toHaveBeenCalledWith(expect.any(Number), expect.any(Number));
    await turns.interruptAll(session);
    await closeTurns({ turns });
  });

  it('is aborted when its user loses access, and one that waits ends at once', async () => {
    const { turns, watches, first, waiting } = await startTwo();
    const running = turns.findActive(first);
    const error = new OracleError('access_revoked');
    watches[1]?.(error);
    expect(await waiting.outcome).toMatchObject({ status: 'aborted', error });
    expect(running?.signal.aborted).toBe(false);
    watches[0]?.(error);
    expect(await running?.outcome).toMatchObject({ status: 'aborted', error });
    await expect.poll(() => turns.listActive()).toEqual([]);
  });

  it('shows that its end is not stored after the time that readers wait', async () => {
    const session = await open();
    const runs = wrapRuns(test.store);
    const mayStore = Promise.withResolvers<void>();
    runs.finish = async (request) => {
      await mayStore.promise;
      return test.store.runs.finish(request);
    };
    const { turns, finish } = createTurns({ runs, storeWaitMs: 1 });
    const runId = await turns.start(createTurnRequest(session));
    const live = turns.findActive({ owner: session.owner, runId });
    finish(runId);
    expect(await live?.outcome).toMatchObject({ status: 'failed', error: STORE_AWAY });
    mayStore.resolve();
    await expect.poll(() => turns.listActive()).toEqual([]);
  });
});

describe('a host that has lost its database', () => {
  it('stops its running turns and drops those that wait', async () => {
    const { turns, disconnect, first, waiting, counts } = await startTwo();
    const running = turns.findActive(first);
    disconnect();
    expect(await waiting.outcome).toEqual({
      ...{ status: 'interrupted', messageId: undefined, text: '', warnings: [] },
      error: expect.objectContaining(STORE_AWAY),
    });
    const readers = waiting.log.read(1, new AbortController().signal);
    await expect(readers.next()).rejects.toMatchObject(STORE_AWAY);
    expect(await running?.outcome).toMatchObject({ status: 'interrupted', error: STORE_AWAY });
    await expect.poll(() => turns.count()).toEqual({ running: 0, queued: 0 });
    expect(counts.settled).toBe(1);
  });

  it('shows readers at once that an end is not stored', async () => {
    const session = await open();
    const runs = wrapRuns(test.store);
    runs.finish = async () => {
      throw new Error('away');
    };
    const { turns, disconnect } = createTurns({ runs });
    const runId = await turns.start(createTurnRequest(session));
    const live = turns.findActive({ owner: session.owner, runId });
    disconnect();
    expect(await live?.outcome).toMatchObject({ status: 'failed', error: STORE_AWAY });
    await turns.close(0, 60_000);
  });

  it('has nothing to do for a run that it does not have', async () => {
    const { turns, sent, changes } = createTurns();
    await turns.dropLost({ owner: 'did:key:owner', runId: 'unknown' });
    turns.cancel('unknown', 'aborted');
    expect([sent.mock.calls, changes]).toEqual([[], []]);
  });
});

describe('Turns.abort', () => {
  it('aborts the running turn of a session, without an error, and starts the next', async () => {
    const { turns, session, first, second, jobs, sent } = await startTwo();
    const live = turns.findActive(first);
    expect(await turns.abort({ ...session, runId: second.runId })).toBe(false);
    expect(await turns.abort({ ...session, runId: first.runId })).toBe(true);
    const outcome = await live?.outcome;
    expect([outcome?.status, outcome?.error]).toEqual(['aborted', undefined]);
    await expect.poll(() => jobs.has(second.runId)).toBe(true);
    expect(await turns.abort(session)).toBe(true);
    await expect.poll(() => turns.listActive()).toEqual([]);
    expect(await turns.abort(session)).toBe(false);
    expect(sent).not.toHaveBeenCalled();
  });

  it('finds nothing in a session without turns, and in that of another user', async () => {
    const { turns, session } = await startTwo();
    const other = await open();
    expect(await turns.abort(other)).toBe(false);
    expect(await turns.abort({ ...session, owner: other.owner })).toBe(false);
    expect(turns.count()).toEqual({ running: 1, queued: 1 });
    await closeTurns({ turns });
  });

  it('sends the abort of a turn of another host there', async () => {
    const another = await test.another();
    const { run, session } = await startTestRun(another);
    const { turns, sent, changes } = createTurns();
    expect(await turns.abort(session)).toBe(true);
    const aborted = { runId: run.runId, reason: 'aborted' };
    expect(sent.mock.calls).toEqual([[another.runs.hostId, 'run-canceled', aborted]]);
    expect(changes).toEqual([]);
  });

  it('ends a paused turn, and starts the one that waited for it', async () => {
    const { key, session } = await startTestRun(test.store);
    await test.store.runs.pause({
      ...key,
      interrupts: [createQuestion(crypto.randomUUID())],
      limit: 10,
      steps: [],
      request: {},
      end: { message: { content: '', isComplete: false } },
    });
    const { turns, jobs, changes, sent } = createTurns();
    const waiting = await turns.start(createTurnRequest(session, { waitsForPaused: true }));
    expect(await turns.abort(session)).toBe(true);
    expect((await find(key))?.status).toBe('aborted');
    await expect.poll(() => jobs.has(waiting)).toBe(true);
    expect([changes, sent.mock.calls]).toEqual([['turn_ended', 'turn_started'], []]);
    await closeTurns({ turns });
  });

  it('aborts a turn of this host when another host sends it', async () => {
    const { turns, bus, first } = await startTwo();
    const live = turns.findActive(first);
    bus.send(bus.hostId, 'run-canceled', { runId: first.runId, reason: 'aborted' });
    expect(await live?.outcome).toMatchObject({ status: 'aborted', error: undefined });
    await closeTurns({ turns });
  });
});

describe('Turns.interruptAll', () => {
  it('ends all turns of one session and waits for those of this host', async () => {
    const another = await test.another();
    const { turns, session, sent, first, waiting } = await startTwo();
    const { run } = await startTestRun(another, session);
    const other = await open();
    const untouched = await turns.start(createTurnRequest(other));
    const live = turns.findActive(first);
    let ended = 0;
    for (const { outcome } of live ? [live, waiting] : []) void outcome.then(() => ended++);
    await turns.interruptAll(session);
    expect(ended).toBe(2);
    expect(await waiting.outcome).toMatchObject({
      status: 'interrupted',
      error: { code: 'turn_interrupted' },
    });
    expect(sent.mock.calls).toContainEqual([
      another.runs.hostId,
      'run-canceled',
      { runId: run.runId, reason: 'interrupted' },
    ]);
    await expect.poll(() => turns.listActive().map(({ runId: id }) => id)).toEqual([untouched]);
    await closeTurns({ turns });
  });
});

describe('Turns.close', () => {
  it('lets running turns finish within the grace period, and takes no next one', async () => {
    const another = await test.another();
    const runs = wrapRuns(test.store);
    // Those of all users.
    runs.release = (hostId) => test.forAllUsers(() => test.store.runs.release(hostId));
    const { turns, finish, first, session, second, waiting, sent } = await startTwo({ runs });
    const live = turns.findActive(first);
    const closed = turns.close(60_000, 60_000);
    expect(() => turns.assertOpen()).toThrow(hostStopping());
    expect(await waiting.outcome).toEqual({
      ...{ status: 'interrupted', messageId: undefined, text: '', warnings: [] },
      error: expect.objectContaining({ code: 'host_stopping' }),
    });
    expect(sent.mock.calls).toEqual([['others', 'run-available', null]]);
    finish(first.runId);
    expect([await closed, (await live?.outcome)?.status]).toEqual([true, 'finished']);
    // Another host may take it.
    const { status, hostId } = (await find(second)) ?? {};
    expect([status, hostId]).toEqual(['running', undefined]);
    expect(await another.runs.current(session)).toMatchObject({ runId: second.runId });
  });

  it('interrupts the rest after the grace period, with the reason', async () => {
    const session = await open();
    const { turns, sent } = createTurns();
    const runId = await turns.start(createTurnRequest(session));
    const live = turns.findActive({ owner: session.owner, runId });
    expect(await turns.close(0, 60_000)).toBe(true);
    expect(await live?.outcome).toMatchObject({
      status: 'interrupted',
      error: { code: 'host_stopping', retryAfterSeconds: 5 },
    });
    // No queued turn: nothing is available.
    expect(sent).not.toHaveBeenCalled();
  });

  it('drops queued turns also if they cannot be released', async () => {
    const runs = wrapRuns(test.store);
    runs.release = async () => {
      throw new Error('away');
    };
    const { turns, waiting, lines } = await startTwo({ runs });
    expect(await turns.close(0, 60_000)).toBe(true);
    expect(await waiting.outcome).toMatchObject({ error: { code: 'host_stopping' } });
    expect(lines).toMatchObject([{ level: 40 }]);
  });

  it('leaves a turn that it could not release to other hosts, which can still start it', async () => {
    const runs = wrapRuns(test.store);
    runs.release = async () => {
      throw new Error('away');
    };
    const { turns, first, second, waiting, finish, jobs } = await startTwo({ runs });
    const closed = turns.close(60_000, 60_000);
    await waiting.outcome;
    finish(first.runId);
    expect(await closed).toBe(true);
    expect(jobs.has(second.runId)).toBe(false);
    const { status, startedAt } = (await find(second)) ?? {};
    expect([status, startedAt]).toEqual(['running', undefined]);
  });

  it('does not wait for a store that does not answer', async () => {
    const session = await open();
    const runs = wrapRuns(test.store);
    const attempts: unknown[] = [];
    runs.finish = async ({ runId }) => {
      attempts.push(runId);
      throw new Error('away');
    };
    const { turns } = createTurns({ runs });
    const runId = await turns.start(createTurnRequest(session));
    expect(await turns.close(0, 60_000)).toBe(true);
    expect(attempts).toEqual([runId]);
  });

  it('returns false, and reports the turns, if some have not ended in time', async () => {
    const session = await open();
    const { turns, finish, lines } = createTurns();
    const runId = await turns.start(createTurnRequest(session));
    const live = turns.findActive({ owner: session.owner, runId });
    expect(await turns.close(60_000, 1)).toBe(false);
    expect(lines).toMatchObject([{ level: 50, runs: [runId] }]);
    expect(live?.cancelReason).toBeUndefined();
    finish(runId);
    await expect.poll(() => turns.listActive()).toEqual([]);
  });
});
