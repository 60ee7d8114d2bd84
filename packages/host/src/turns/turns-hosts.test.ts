import { OracleError } from '@sibyl/protocol';
import { describe, expect, it, vi } from 'vitest';
import { useStore } from '../../test/support/test-database.js';
import {
  finishTestRun,
  flushFrames,
  openTestSession,
  startTestRun,
} from '../../test/support/test-runs.js';
import {
  closeTurns,
  createTestTurns,
  createTurnRequest,
  type RequestChanges,
  startTwoTurns,
  type TestTurnsOptions,
  wrapRuns,
} from '../../test/support/test-turns.js';
import type { ServerEvent } from '../bus/event-bus.js';
import type { Frame } from '../store/runs/frames.js';
import type { Run } from '../store/runs/run.js';
import type { RunStore } from '../store/runs/run-store.js';
import type { RunKey } from '../store/schema/runs.js';
import { StoreError } from '../store/store-errors.js';
import type { ActiveRun } from './run/active-run.js';
import { toStoredRequest } from './turn-request.js';

const test = useStore('sqlite');

const createTurns = (options: TestTurnsOptions = {}) => createTestTurns(test.store, options);
const open = () => openTestSession(test.store);

const startTwo = (options: TestTurnsOptions = {}) => startTwoTurns(test.store, options);

/** A turn that was accepted by another host, waited there, and was promoted while that host stopped. */
async function promoteElsewhere(more: RequestChanges = {}) {
  const another = await test.another();
  const session = await open();
  const before = await startTestRun(another, session);
  const request = toStoredRequest(createTurnRequest(session, more));
  const { run, key } = await startTestRun(another, { ...session, request, isResumable: true });
  const promote = async () => {
    const ended = await finishTestRun(another.runs, before.key, {}, false);
    if (!ended?.next) throw new Error('No turn was promoted.');
    return ended.next;
  };
  return { another, session, run, key, promote };
}

const find = (key: RunKey) => test.store.runs.find(key);

/** Reads a stream of a turn to its end. */
async function readAll({ log }: ActiveRun): Promise<Frame[]> {
  const frames: Frame[] = [];
  for await (const page of log.read(0, new AbortController().signal)) frames.push(...page);
  return frames;
}

describe('Turns.claim', () => {
  it('executes a turn of another host that has not started it, with its stored request', async () => {
    const { promote, key } = await promoteElsewhere({ client: 'slack' });
    const host = createTurns({ max: 1, resumesTurns: true });
    await host.turns.claim(await promote());
    const job = host.jobs.get(key.runId);
    expect(job?.request).toMatchObject({ client: 'slack', caller: { did: key.owner } });
    expect(job?.request.warnings).toBeUndefined();
    expect(job?.progress).toBeUndefined();
    expect(job?.recorder.openJournal([], new Map()).isResumable).toBe(true);
    expect([host.turns.hasRoom, host.turns.count()]).toEqual([false, { running: 1, queued: 0 }]);
    expect(await find(key)).toMatchObject({ hostId: test.store.runs.hostId, status: 'running' });
    host.finish(key.runId);
    expect(await job?.outcome).toMatchObject({ status: 'finished' });
    expect(job?.log.since(0).map(({ event }) => event)).toEqual(['run', 'done']);
    await expect.poll(() => host.turns.hasRoom).toBe(true);
    expect(host.changes).toEqual(['turn_started', 'turn_ended']);
  });

  it('of a host that then stops: the turn may finish', async () => {
    const { promote, key } = await promoteElsewhere();
    const runs = wrapRuns(test.store);
    const answered = Promise.withResolvers<void>();
    runs.claim = async (request) => {
      const claimed = await test.store.runs.claim(request);
      await answered.promise;
      return claimed;
    };
    const host = createTurns({ runs });
    const claiming = host.turns.claim(await promote());
    await expect.poll(async () => (await find(key))?.startedAt).toEqual(expect.any(Number));
    const closed = host.turns.close(60_000, 60_000);
    answered.resolve();
    await claiming;
    host.finish(key.runId);
    expect(await closed).toBe(true);
    expect(await find(key)).toMatchObject({ status: 'finished' });
  });

  it('does nothing if another host was faster', async () => {
    const { promote, key, another } = await promoteElsewhere();
    const next = await promote();
    await another.runs.claim({ ...key, from: next.hostId });
    const host = createTurns();
    await host.turns.claim(next);
    expect(host.turns.listActive()).toEqual([]);
  });
});

describe('Turns.adopt', () => {
  const step = { type: 'model', path: '', message: { role: 'assistant', text: 'earlier' } };

  /** Claims the turn of another host for this one. */
  async function claimHere(more: RequestChanges = {}) {
    const { promote, key, ...accepted } = await promoteElsewhere(more);
    const { hostId: from } = await promote();
    const run = await test.store.runs.claim({ ...key, from });
    if (!run) throw new Error('The turn was not claimed.');
    return { ...accepted, key, run };
  }

  it('continues the log of a run that has frames', async () => {
    const { promote, key, run, another } = await promoteElsewhere();
    const data = JSON.stringify({ runId: run.runId });
    await flushFrames(another.runs, key, [{ seq: 1, event: 'run', data }]);
    const host = createTurns();
    await host.turns.claim(await promote());
    expect(host.turns.findActive(key)?.log.since(0)).toEqual([{ seq: 1, event: 'run', data }]);
    await closeTurns(host);
  });

  it('continues a later attempt with the steps of earlier ones, and warns of old credentials', async () => {
    const { run, key, another } = await promoteElsewhere();
    const started = await startTestRun(another, {
      request: toStoredRequest(createTurnRequest(run, { user: { matrixAccessToken: 'token' } })),
      isResumable: true,
    });
    await another.runs.flush([{ ...started.key, frames: [], steps: [{ step: 1, value: step }] }]);
    const next = await test.store.runs.resume(started.run, []);
    if (!next) throw new Error('The turn was not resumed.');
    const host = createTurns();
    await host.turns.adopt(next);
    const job = host.jobs.get(next.runId);
    expect(job?.progress?.steps).toEqual([step]);
    expect(job?.request.warnings).toMatchObject([{ code: 'credentials_expired' }]);
    const [first] = job?.log.since(0) ?? [];
    expect(JSON.parse(first?.data ?? '')).toMatchObject({ attempt: 2, partialLength: 7 });
    expect(host.turns.findActive(key)).toBeUndefined();
    await closeTurns(host);
  });

  it('does not warn of credentials in the first attempt', async () => {
    const { run } = await claimHere({ user: { matrixAccessToken: 'token' } });
    const host = createTurns();
    await host.turns.adopt(run);
    expect(host.jobs.get(run.runId)?.request.warnings).toBeUndefined();
    await closeTurns(host);
  });

  it.each([
    ['access', new OracleError('access_revoked'), 'access_revoked'],
    ['gate', new OracleError('insufficient_credit'), 'insufficient_credit'],
    ['gate', new Error('broken'), 'store_unavailable'],
  ] as const)('ends a turn that is not admitted any more: %s, %s', async (who, error, code) => {
    const { run, key, session } = await claimHere();
    const host = createTurns();
    const waiting = await host.turns.start(createTurnRequest(session));
    host.refusals[who] = error;
    await host.turns.adopt(run);
    expect(await find(key)).toMatchObject({ status: 'failed', report: { error: { code } } });
    expect(host.jobs.has(run.runId)).toBe(false);
    // The next turn of the session begins here.
    await expect.poll(() => host.jobs.has(waiting)).toBe(true);
    expect(host.turns.isExecuting(run.runId)).toBe(false);
    await closeTurns(host);
  });

  it('ends a turn whose request is not stored', async () => {
    const { run, key } = await startTestRun(test.store);
    const host = createTurns();
    await host.turns.adopt(run);
    const error = { code: 'store_unavailable' };
    expect(await find(key)).toMatchObject({ status: 'failed', report: { error } });
    expect(host.turns.listActive()).toEqual([]);
    await closeTurns(host);
  });

  it('leaves a turn that another host has ended meanwhile', async () => {
    const { run, key } = await startTestRun(test.store);
    await finishTestRun(test.store.runs, key, { content: 'theirs' });
    const host = createTurns();
    await host.turns.adopt(run);
    expect((await find(key))?.status).toBe('finished');
    expect([host.turns.listActive(), host.lines]).toEqual([[], []]);
  });

  it('drops a turn whose session was deleted meanwhile', async () => {
    const { run } = await claimHere();
    const host = createTurns();
    await host.turns.adopt({ ...run, sessionId: 'deleted' });
    expect([host.turns.listActive(), host.lines]).toEqual([[], []]);
  });

  it('reports a turn that could not be read, which is tried again later', async () => {
    const { run } = await claimHere();
    const runs = wrapRuns(test.store);
    runs.request = async () => {
      throw new Error('away');
    };
    const host = createTurns({ runs });
    await host.turns.adopt(run);
    expect(host.lines).toMatchObject([{ level: 50, runId: run.runId, did: run.owner }]);
    expect(host.turns.isExecuting(run.runId)).toBe(false);
    delete (runs as Partial<RunStore>).request;
    await host.turns.adopt(run);
    expect(host.turns.isExecuting(run.runId)).toBe(true);
    await closeTurns(host);
  });

  it('reads a turn once if it is asked twice, and executes it once', async () => {
    const { run } = await claimHere();
    const runs = wrapRuns(test.store);
    const request = vi.spyOn(runs, 'request');
    const host = createTurns({ runs });
    const first = host.turns.adopt(run);
    expect(host.turns.isExecuting(run.runId)).toBe(true);
    await Promise.all([first, host.turns.adopt(run)]);
    await host.turns.adopt(run);
    expect(request).toHaveBeenCalledTimes(1);
    expect(host.changes).toEqual(['turn_started']);
    await closeTurns(host);
  });

  it('begins nothing on a host that stops: the turn is left to others', async () => {
    const { run, key, another } = await claimHere();
    const host = createTurns();
    await closeTurns(host);
    await host.turns.adopt(run);
    expect([host.turns.listActive(), (await find(key))?.status]).toEqual([[], 'running']);
    expect(host.sent.mock.calls).toEqual([['others', 'run-available', null]]);
    const claimed = await another.runs.claim({ ...key, from: undefined });
    expect(claimed).toMatchObject({ hostId: another.runs.hostId, startedAt: expect.any(Number) });
    // It has another host now.
    await host.turns.adopt(run);
    expect(await find(key)).toMatchObject({ hostId: another.runs.hostId });
    expect(host.sent).toHaveBeenCalledTimes(1);
  });
});

describe('Turns.abort at a host that stops', () => {
  it('leaves the turn that waited for the paused one to others', async () => {
    const host = createTurns();
    const long = await host.turns.start(createTurnRequest(await open()));
    const { key, session } = await startTestRun(test.store);
    await test.store.runs.pause({
      ...key,
      ...{ interrupts: [], steps: [], request: {}, limit: 10 },
      end: { message: { content: '', isComplete: false } },
    });
    const request = createTurnRequest(session, { waitsForPaused: true });
    const waiting = { owner: key.owner, runId: await host.turns.start(request) };
    const closed = host.turns.close(60_000, 60_000);
    await expect.poll(() => host.turns.count()).toEqual({ running: 1, queued: 0 });
    expect(await host.turns.abort(session)).toBe(true);
    const unstarted = { hostId: undefined, startedAt: undefined };
    await expect
      .poll(async () => ({ ...unstarted, ...(await find(waiting)) }))
      .toMatchObject({ ...unstarted, status: 'running' });
    host.finish(long);
    expect(await closed).toBe(true);
    const next = createTurns({ runs: (await test.another()).runs });
    await next.turns.claim((await find(waiting)) as Run);
    await expect.poll(() => next.jobs.has(waiting.runId)).toBe(true);
    await closeTurns(next);
  });
});

describe('Turns.startOrForward', () => {
  it('reports a promoted turn to the host that accepted it', async () => {
    const { promote, another, key } = await promoteElsewhere();
    const host = createTurns();
    host.turns.startOrForward(await promote());
    expect(host.sent.mock.calls).toEqual([[another.runs.hostId, 'run-promoted', key]]);
    expect(host.turns.listActive()).toEqual([]);
  });

  it('offers a promoted turn without a host to all others', async () => {
    const { promote } = await promoteElsewhere();
    const host = createTurns();
    host.turns.startOrForward({ ...(await promote()), hostId: undefined });
    expect(host.sent.mock.calls).toEqual([['others', 'run-available', null]]);
  });

  it('begins the queued turn of this host when the one before it ends', async () => {
    const host = await startTwo();
    host.finish(host.first.runId);
    await expect.poll(() => host.jobs.has(host.second.runId)).toBe(true);
    expect(host.sent).not.toHaveBeenCalled();
    await closeTurns(host);
  });
});

describe('Turns.startStored', () => {
  /** A queued turn of this host that another host has promoted. */
  async function promoteFor(options: TestTurnsOptions = {}) {
    const another = await test.another();
    const session = await open();
    const before = await startTestRun(another, session);
    const host = createTurns(options);
    const runId = await host.turns.start(createTurnRequest(session));
    const promote = () => finishTestRun(another.runs, before.key);
    return { ...host, key: { owner: session.owner, runId }, promote };
  }

  it('begins a turn of this host that another host has promoted', async () => {
    const { key, promote, bus, turns, jobs } = await promoteFor();
    await promote();
    bus.send(bus.hostId, 'run-promoted', key);
    await expect.poll(() => jobs.has(key.runId)).toBe(true);
    expect((await find(key))?.startedAt).toEqual(expect.any(Number));
    await closeTurns({ turns });
  });

  it('does not begin a turn that still waits', async () => {
    const { key, turns } = await promoteFor();
    await turns.startStored(key);
    expect(turns.count()).toEqual({ running: 0, queued: 1 });
    await closeTurns({ turns });
  });

  it('does not begin the turn of another host', async () => {
    const { promote, key } = await promoteElsewhere();
    await promote();
    const host = createTurns();
    await host.turns.startStored(key);
    expect(host.turns.listActive()).toEqual([]);
  });

  it.each(['find', 'claim'] as const)('survives a store that fails: %s', async (method) => {
    const runs = wrapRuns(test.store);
    const { key, promote, turns } = await promoteFor({ runs });
    await promote();
    runs[method] = async () => {
      throw new Error('away');
    };
    await turns.startStored(key);
    expect(turns.count()).toEqual({ running: 0, queued: 1 });
    delete (runs as Partial<RunStore>)[method];
    await turns.startStored(key);
    expect(turns.count()).toEqual({ running: 1, queued: 0 });
    await closeTurns({ turns });
  });
});

describe('Turns.withdraw', () => {
  const readData = ({ data = '{}' }: { readonly data?: string } = {}) => JSON.parse(data);

  it('ends a queued turn without an answer, and frees what it held', async () => {
    const host = await startTwo({ maxPerUser: 2 });
    const published: ServerEvent[] = [];
    host.events.subscribe(host.session, (event) => published.push(event));
    host.changes.splice(0);
    const { log, outcome } = host.waiting;
    await host.turns.withdraw(host.second);
    expect(await outcome).toEqual({
      status: 'aborted',
      messageId: undefined,
      text: '',
      warnings: [],
      error: new OracleError('message_withdrawn'),
    });
    const events = log.since(0).map(({ event }) => event);
    expect(events).toEqual(['run', 'done']);
    expect(readData(log.since(1)[0])).toEqual({
      runId: host.second.runId,
      status: 'aborted',
      aborted: true,
      partialText: '',
    });
    // Its readers end.
    for await (const _ of log.read(0, new AbortController().signal));
    expect(published.map(({ event }) => event)).toEqual(['message_cache_invalidation']);
    expect([host.changes, host.counts.settled]).toEqual([['switched'], 1]);
    expect(host.turns.count()).toEqual({ running: 1, queued: 0 });
    // It holds none of the turns that its user may have at the same time.
    await host.turns.start(createTurnRequest(host.session));
    expect(host.sent).not.toHaveBeenCalled();
    await closeTurns(host);
  });

  it('refuses a turn that has begun, and one that is unknown or belongs to another user', async () => {
    const host = await startTwo();
    const { owner } = await open();
    await expect(host.turns.withdraw(host.first)).rejects.toMatchObject({ code: 'not_queued' });
    const foreign = host.turns.withdraw({ ...host.second, owner });
    await expect(foreign).rejects.toMatchObject({ code: 'run_not_found' });
    expect(host.turns.count()).toEqual({ running: 1, queued: 1 });
    await closeTurns(host);
  });

  it('confirms a withdrawal whose reply was lost', async () => {
    const runs = wrapRuns(test.store);
    const host = await startTwo({ runs });
    runs.withdraw = async (key) => {
      await test.store.runs.withdraw(key);
      throw new StoreError('Connection terminated unexpectedly');
    };
    await host.turns.withdraw(host.second);
    expect(await host.waiting.outcome).toMatchObject({ error: { code: 'message_withdrawn' } });
    runs.withdraw = async () => {
      throw new StoreError('away');
    };
    await expect(host.turns.withdraw(host.first)).rejects.toThrow('away');
    await closeTurns(host);
  });

  it('reports to the host that has queued the turn, which drops it', async () => {
    const { session, another, key } = await promoteElsewhere();
    const host = createTurns();
    await host.turns.withdraw(key);
    expect(host.sent.mock.calls).toEqual([[another.runs.hostId, 'run-withdrawn', key]]);
    expect(await find(key)).toMatchObject({ status: 'aborted', sessionId: session.sessionId });
  });
});

describe('Turns.dropLost', () => {
  const runs = () => test.store.runs;

  it('ends a queued turn as withdrawn if another host has withdrawn it', async () => {
    const host = await startTwo();
    await runs().withdraw(host.second);
    host.bus.send(host.bus.hostId, 'run-withdrawn', host.second);
    expect(await host.waiting.outcome).toMatchObject({
      status: 'aborted',
      error: { code: 'message_withdrawn' },
    });
    expect(host.turns.count()).toEqual({ running: 1, queued: 0 });
    await closeTurns(host);
  });

  it('ends the stream of a queued turn as withdrawn if a flush finds out before the other host reports it', async () => {
    const host = await startTwo();
    const reading = readAll(host.waiting);
    // Before its first frame is stored.
    await runs().withdraw(host.second);
    expect((await reading).map(({ event }) => event)).toEqual(['run', 'done']);
    expect(await host.waiting.outcome).toMatchObject({ status: 'aborted' });
    await closeTurns(host);
  });

  it('ends the streams of a queued turn that another host has or that is deleted: their clients reconnect', async () => {
    const host = await startTwo();
    const reading = readAll(host.waiting);
    const [first, second] = await Promise.all([host.first, host.second].map(find));
    const away = vi.spyOn(runs(), 'find').mockResolvedValue(second && { ...second, hostId: 'b' });
    await host.turns.dropLost(host.second);
    await expect(reading).rejects.toMatchObject({ code: 'store_unavailable' });
    expect(host.turns.count()).toEqual({ running: 1, queued: 0 });
    away.mockResolvedValue(undefined);
    const live = host.turns.findActive(host.first);
    await host.turns.dropLost(host.first);
    expect(await live?.outcome).toMatchObject({ status: 'interrupted' });
    expect(first?.status).toBe('running');
    away.mockRestore();
    await closeTurns(host);
  });

  it('keeps a turn that this host has, one of another user, and all of them while the store is away', async () => {
    const host = await startTwo();
    const { owner } = await open();
    await host.turns.dropLost(host.first);
    await host.turns.dropLost(host.second);
    const away = vi.spyOn(runs(), 'find').mockRejectedValue(new Error('away'));
    await host.turns.dropLost(host.second);
    away.mockRestore();
    await runs().withdraw(host.second);
    const stored = await find(host.second);
    const foreign = vi.spyOn(runs(), 'find').mockResolvedValue(stored);
    await host.turns.dropLost({ ...host.second, owner });
    foreign.mockRestore();
    await host.turns.dropLost({ ...host.first, owner });
    expect(host.turns.count()).toEqual({ running: 1, queued: 1 });
    await closeTurns(host);
  });
});
