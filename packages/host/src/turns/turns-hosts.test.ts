import { OracleError } from '@sibyl/protocol';
import { pino } from 'pino';
import { describe, expect, it, vi } from 'vitest';
import { ScriptedModel } from '../../test/support/agent/scripted-model.js';
import { useStore } from '../../test/support/test-database.js';
import {
  finishTestRun,
  flushFrames,
  openTestSession,
  startTestRun,
} from '../../test/support/test-runs.js';
import { MemoryEventBus, type ServerEvent, type SessionKey } from '../bus/event-bus.js';
import { MemoryHostBus, SoleHost } from '../bus/host-bus.js';
import type { SessionChanges } from '../bus/session-changes.js';
import type { Models } from '../models/models.js';
import type { RunKey } from '../store/runs/run.js';
import type { RunStore } from '../store/runs/run-store.js';
import { type Gates, TurnAccount } from './gates.js';
import type { RunOutcome } from './run-log.js';
import { buildDoneFrame } from './run-recorder.js';
import type { TurnRunner } from './run-turn.js';
import type { TurnAccess } from './turn-access.js';
import { type TurnRequest, toStoredRequest } from './turn-request.js';
import type { TurnJob } from './turn-setup.js';
import { Turns } from './turns.js';

const test = useStore('sqlite');

type Settings = ConstructorParameters<typeof Turns>[0]['settings'];

interface Options extends Partial<Settings> {
  readonly runs?: RunStore;
  readonly onFlush?: (runs: number, seconds: number) => void;
}

/** A run store whose methods a test may replace. */
const wrapRuns = () => Object.create(test.store.runs) as RunStore;

/** Stores the end of a turn as the runner does. */
async function storeEnd({ live, recorder }: TurnJob): Promise<RunOutcome> {
  const { id: runId, messageId } = live.run;
  const status = live.cancelReason ?? (live.error ? 'failed' : 'finished');
  const text = 'Hello';
  const message = { content: text, isComplete: status === 'finished' };
  await recorder.end({ status, message }, buildDoneFrame({ runId, messageId, status, text }));
  return { status, messageId, text, warnings: [], error: live.error };
}

/** Runs turns until they are canceled or a test finishes them. */
function createRunner() {
  const jobs = new Map<string, TurnJob>();
  const ends = new Map<string, () => void>();
  const state: { error?: Error } = {};
  const run = async (job: TurnJob) => {
    const { signal, run: stored } = job.live;
    const ended = Promise.withResolvers<void>();
    jobs.set(stored.id, job);
    ends.set(stored.id, ended.resolve);
    signal.addEventListener('abort', () => ended.resolve());
    if (!signal.aborted) await ended.promise;
    if (state.error) throw state.error;
    return storeEnd(job);
  };
  const runner = { run } as Pick<TurnRunner, 'run'> as TurnRunner;
  return { runner, jobs, finish: (runId: string) => ends.get(runId)?.(), state };
}

/** Gates and access that admit turns until a test says otherwise. */
function createAdmission() {
  const counts = { settled: 0 };
  const refusals: { gate?: Error; access?: Error } = {};
  const watches: ((error: OracleError) => void)[] = [];
  const settle = async () => {
    counts.settled += 1;
  };
  const gates: Pick<Gates, 'admit'> = {
    admit: async () => {
      if (refusals.gate) throw refusals.gate;
      return new TurnAccount({ check: async () => {}, add: () => {}, settle });
    },
  };
  const access: Pick<TurnAccess, 'admit' | 'release' | 'watch' | 'assertKept'> = {
    admit: async () => {},
    release: async () => {},
    watch: (_caller, _live, onEnded) => void watches.push(onEnded),
    assertKept: async () => {
      if (refusals.access) throw refusals.access;
    },
  };
  return { counts, refusals, watches, gates: gates as Gates, access: access as TurnAccess };
}

function createTurns({ runs = test.store.runs, onFlush, ...settings }: Options = {}) {
  const { hostId } = runs;
  const lines: { level: number; runId?: string; did?: string }[] = [];
  const logger = pino({ base: null }, { write: (line) => lines.push(JSON.parse(line)) });
  const bus = new MemoryHostBus(hostId, logger);
  const sent = vi.spyOn(bus, 'send');
  const events = new MemoryEventBus();
  const changes: string[] = [];
  const publish: SessionChanges['publish'] = (_, change) => void changes.push(change);
  const { runner, ...running } = createRunner();
  const { gates, access, ...admission } = createAdmission();
  const model = new ScriptedModel();
  const turns = new Turns({
    store: { ...test.store, runs },
    cluster: { hostId, bus, liveness: new SoleHost(hostId), close: async () => {} },
    ...{ gates, access, runner, events, logger, onFlush },
    models: { get: () => model } as Pick<Models, 'get'> as Models,
    changes: { publish } as Pick<SessionChanges, 'publish'> as SessionChanges,
    settings: { maxPerUser: 10, max: 10, storeWaitMs: 60_000, resumesTurns: false, ...settings },
  });
  return { turns, bus, sent, events, changes, lines, ...running, ...admission };
}

function ask({ owner, sessionId }: SessionKey, more: Partial<TurnRequest> = {}): TurnRequest {
  return {
    caller: {
      did: owner,
      expiration: Number.POSITIVE_INFINITY,
      presentedDelegation: undefined,
      loginCids: [],
    },
    sessionId,
    requestId: 'request',
    message: { message: 'hi', multitask: 'enqueue' },
    user: {},
    client: 'api',
    ...more,
  };
}

const open = () => openTestSession(test.store);

/** A running turn of this host and one that waits for it. */
async function startTwo(options: Options = {}) {
  const session = await open();
  const host = createTurns(options);
  const first = { owner: session.owner, runId: await host.turns.start(ask(session)) };
  const second = { owner: session.owner, runId: await host.turns.start(ask(session)) };
  const live = host.turns.findLive(second);
  if (!live) throw new Error('The second turn is not queued.');
  return { ...host, session, first, second, waiting: live };
}

const closeAll = ({ turns }: Pick<ReturnType<typeof createTurns>, 'turns'>) =>
  turns.close(0, 60_000);

/** A turn that was accepted by another host, waited there, and was promoted while that host stopped. */
async function promoteElsewhere(more: Partial<TurnRequest> = {}) {
  const another = await test.another();
  const session = await open();
  const before = await startTestRun(another, session);
  const request = toStoredRequest(ask(session, more));
  const { run, key } = await startTestRun(another, { ...session, request, isResumable: true });
  const promote = async () => {
    const ended = await finishTestRun(another.runs, before.key, {}, false);
    if (!ended?.next) throw new Error('No turn was promoted.');
    return ended.next;
  };
  return { another, session, run, key, promote };
}

const find = (key: RunKey) => test.store.runs.find(key);

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
    expect(await job?.live.outcome).toMatchObject({ status: 'finished' });
    expect(job?.live.log.since(0).map(({ event }) => event)).toEqual(['run', 'done']);
    await vi.waitFor(() => expect(host.turns.hasRoom).toBe(true));
    expect(host.changes).toEqual(['turn_started', 'turn_ended']);
  });

  it('does nothing if another host was faster', async () => {
    const { promote, key, another } = await promoteElsewhere();
    const next = await promote();
    await another.runs.claim({ ...key, from: next.hostId });
    const host = createTurns();
    await host.turns.claim(next);
    expect(host.turns.listLive()).toEqual([]);
  });
});

describe('Turns.adopt', () => {
  const step = { type: 'model', path: '', message: { role: 'assistant', text: 'earlier' } };

  /** Claims the turn of another host for this one. */
  async function claimHere(more: Partial<TurnRequest> = {}) {
    const { promote, key, ...accepted } = await promoteElsewhere(more);
    const { hostId: from } = await promote();
    const run = await test.store.runs.claim({ ...key, from });
    if (!run) throw new Error('The turn was not claimed.');
    return { ...accepted, key, run };
  }

  it('continues the log of a run that has frames', async () => {
    const { promote, key, run, another } = await promoteElsewhere();
    const data = JSON.stringify({ runId: run.id });
    await flushFrames(another.runs, key, [{ seq: 1, event: 'run', data }]);
    const host = createTurns();
    await host.turns.claim(await promote());
    expect(host.turns.findLive(key)?.log.since(0)).toEqual([{ seq: 1, event: 'run', data }]);
    await closeAll(host);
  });

  it('continues a later attempt with the steps of earlier ones, and warns of old credentials', async () => {
    const { run, key, another } = await promoteElsewhere();
    const started = await startTestRun(another, {
      request: toStoredRequest(ask(run, { user: { matrixAccessToken: 'token' } })),
      isResumable: true,
    });
    await another.runs.flush([{ ...started.key, frames: [], steps: [{ step: 1, value: step }] }]);
    const next = await test.store.runs.resume(started.run, []);
    if (!next) throw new Error('The turn was not resumed.');
    const host = createTurns();
    await host.turns.adopt(next);
    const job = host.jobs.get(next.id);
    expect(job?.progress?.steps).toEqual([step]);
    expect(job?.request.warnings).toMatchObject([{ code: 'credentials_expired' }]);
    const [first] = job?.live.log.since(0) ?? [];
    expect(JSON.parse(first?.data ?? '')).toMatchObject({ attempt: 2, partialLength: 7 });
    expect(host.turns.findLive(key)).toBeUndefined();
    await closeAll(host);
  });

  it('does not warn of credentials in the first attempt', async () => {
    const { run } = await claimHere({ user: { matrixAccessToken: 'token' } });
    const host = createTurns();
    await host.turns.adopt(run);
    expect(host.jobs.get(run.id)?.request.warnings).toBeUndefined();
    await closeAll(host);
  });

  it.each([
    ['access', new OracleError('access_revoked'), 'access_revoked'],
    ['gate', new OracleError('insufficient_credit'), 'insufficient_credit'],
    ['gate', new Error('broken'), 'store_unavailable'],
  ] as const)('ends a turn that is not admitted any more: %s, %s', async (who, error, code) => {
    const { run, key, session } = await claimHere();
    const host = createTurns();
    const waiting = await host.turns.start(ask(session));
    host.refusals[who] = error;
    await host.turns.adopt(run);
    expect(await find(key)).toMatchObject({ status: 'failed', report: { error: { code } } });
    expect(host.jobs.has(run.id)).toBe(false);
    // The next turn of the session begins here.
    await vi.waitFor(() => expect(host.jobs.has(waiting)).toBe(true));
    expect(host.turns.isExecuting(run.id)).toBe(false);
    await closeAll(host);
  });

  it('ends a turn whose request is not stored', async () => {
    const { run, key } = await startTestRun(test.store);
    const host = createTurns();
    await host.turns.adopt(run);
    const error = { code: 'store_unavailable' };
    expect(await find(key)).toMatchObject({ status: 'failed', report: { error } });
    expect(host.turns.listLive()).toEqual([]);
    await closeAll(host);
  });

  it('leaves a turn that another host has ended meanwhile', async () => {
    const { run, key } = await startTestRun(test.store);
    await finishTestRun(test.store.runs, key, { content: 'theirs' });
    const host = createTurns();
    await host.turns.adopt(run);
    expect((await find(key))?.status).toBe('finished');
    expect([host.turns.listLive(), host.lines]).toEqual([[], []]);
  });

  it('drops a turn whose session was deleted meanwhile', async () => {
    const { run } = await claimHere();
    const host = createTurns();
    await host.turns.adopt({ ...run, sessionId: 'deleted' });
    expect([host.turns.listLive(), host.lines]).toEqual([[], []]);
  });

  it('reports a turn that could not be read, which is tried again later', async () => {
    const { run } = await claimHere();
    const runs = wrapRuns();
    runs.request = async () => {
      throw new Error('away');
    };
    const host = createTurns({ runs });
    await host.turns.adopt(run);
    expect(host.lines).toMatchObject([{ level: 50, runId: run.id, did: run.owner }]);
    expect(host.turns.isExecuting(run.id)).toBe(false);
    delete (runs as Partial<RunStore>).request;
    await host.turns.adopt(run);
    expect(host.turns.isExecuting(run.id)).toBe(true);
    await closeAll(host);
  });

  it('reads a turn once if it is asked twice, and executes it once', async () => {
    const { run } = await claimHere();
    const runs = wrapRuns();
    const request = vi.spyOn(runs, 'request');
    const host = createTurns({ runs });
    const first = host.turns.adopt(run);
    expect(host.turns.isExecuting(run.id)).toBe(true);
    await Promise.all([first, host.turns.adopt(run)]);
    await host.turns.adopt(run);
    expect(request).toHaveBeenCalledTimes(1);
    expect(host.changes).toEqual(['turn_started']);
    await closeAll(host);
  });

  it('begins nothing on a host that stops', async () => {
    const { run, key } = await claimHere();
    const host = createTurns();
    await closeAll(host);
    await host.turns.adopt(run);
    expect([host.turns.listLive(), (await find(key))?.status]).toEqual([[], 'running']);
  });
});

describe('Turns.startOrForward', () => {
  it('reports a promoted turn to the host that accepted it', async () => {
    const { promote, another, key } = await promoteElsewhere();
    const host = createTurns();
    host.turns.startOrForward(await promote());
    expect(host.sent.mock.calls).toEqual([[another.runs.hostId, 'run-promoted', key]]);
    expect(host.turns.listLive()).toEqual([]);
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
    await vi.waitFor(() => expect(host.jobs.has(host.second.runId)).toBe(true));
    expect(host.sent).not.toHaveBeenCalled();
    await closeAll(host);
  });
});

describe('Turns.startStored', () => {
  /** A queued turn of this host that another host has promoted. */
  async function promoteFor(options: Options = {}) {
    const another = await test.another();
    const session = await open();
    const before = await startTestRun(another, session);
    const host = createTurns(options);
    const runId = await host.turns.start(ask(session));
    const promote = () => finishTestRun(another.runs, before.key);
    return { ...host, key: { owner: session.owner, runId }, promote };
  }

  it('begins a turn of this host that another host has promoted', async () => {
    const { key, promote, bus, turns, jobs } = await promoteFor();
    await promote();
    bus.send(bus.hostId, 'run-promoted', key);
    await vi.waitFor(() => expect(jobs.has(key.runId)).toBe(true));
    expect((await find(key))?.startedAt).toEqual(expect.any(Number));
    await closeAll({ turns });
  });

  it('does not begin a turn that still waits', async () => {
    const { key, turns } = await promoteFor();
    await turns.startStored(key);
    expect(turns.count()).toEqual({ running: 0, queued: 1 });
    await closeAll({ turns });
  });

  it('does not begin the turn of another host', async () => {
    const { promote, key } = await promoteElsewhere();
    await promote();
    const host = createTurns();
    await host.turns.startStored(key);
    expect(host.turns.listLive()).toEqual([]);
  });

  it.each(['find', 'claim'] as const)('survives a store that fails: %s', async (method) => {
    const runs = wrapRuns();
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
    await closeAll({ turns });
  });
});

describe('Turns.withdraw', () => {
  const readData = ({ data = '{}' }: { readonly data?: string } = {}) => JSON.parse(data);

  it('ends a queued turn without an answer, and frees what it held', async () => {
    const host = await startTwo({ max: 2 });
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
    expect([host.turns.hasRoom, host.turns.count()]).toEqual([true, { running: 1, queued: 0 }]);
    expect(host.sent).not.toHaveBeenCalled();
    await closeAll(host);
  });

  it('refuses a turn that has begun, and one that is unknown or belongs to another user', async () => {
    const host = await startTwo();
    const { owner } = await open();
    await expect(host.turns.withdraw(host.first)).rejects.toMatchObject({ code: 'not_queued' });
    const foreign = host.turns.withdraw({ ...host.second, owner });
    await expect(foreign).rejects.toMatchObject({ code: 'run_not_found' });
    expect(host.turns.count()).toEqual({ running: 1, queued: 1 });
    await closeAll(host);
  });

  it('reports to the host that has queued the turn, which drops it', async () => {
    const { session, another, key } = await promoteElsewhere();
    const host = createTurns();
    await host.turns.withdraw(key);
    expect(host.sent.mock.calls).toEqual([[another.runs.hostId, 'run-withdrawn', key]]);
    expect(await find(key)).toMatchObject({ status: 'aborted', sessionId: session.sessionId });
  });

  it('drops a queued turn of the same user when another host has withdrawn it', async () => {
    const host = await startTwo();
    const { owner } = await open();
    host.turns.forgetWithdrawn({ ...host.second, owner });
    host.turns.forgetWithdrawn(host.first);
    expect(host.turns.count()).toEqual({ running: 1, queued: 1 });
    host.bus.send(host.bus.hostId, 'run-withdrawn', host.second);
    expect(await host.waiting.outcome).toMatchObject({ status: 'aborted' });
    expect(host.turns.count()).toEqual({ running: 1, queued: 0 });
    await closeAll(host);
  });
});

it('Turns.abort changes nothing for a turn that ends at the same time', async () => {
  const runs = wrapRuns();
  runs.cancel = async () => ({});
  const host = await startTwo({ runs });
  host.changes.splice(0);
  expect(await host.turns.abort(host.session)).toBe(true);
  expect(host.changes).toEqual([]);
  await closeAll(host);
});
