import type { GateRequest } from '@sibyl/plugin-kit';
import { OracleError } from '@sibyl/protocol';
import { pino } from 'pino';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { ScriptedModel } from '../../test/support/agent/scripted-model.js';
import { useStore } from '../../test/support/test-database.js';
import { createQuestion } from '../../test/support/test-interrupts.js';
import { openTestSession, startTestRun } from '../../test/support/test-runs.js';
import { MemoryEventBus, type SessionKey } from '../bus/event-bus.js';
import { MemoryHostBus, SoleHost } from '../bus/host-bus.js';
import type { SessionChanges } from '../bus/session-changes.js';
import type { Models } from '../models/models.js';
import type { RunStore } from '../store/runs/run-store.js';
import { type Gates, TurnAccount } from './gates.js';
import type { RunOutcome } from './run-log.js';
import { buildDoneFrame } from './run-recorder.js';
import type { TurnRunner } from './run-turn.js';
import type { TurnAccess } from './turn-access.js';
import type { TurnRequest } from './turn-request.js';
import type { TurnJob } from './turn-setup.js';
import { Turns } from './turns.js';

const test = useStore('sqlite');
const logger = pino({ level: 'silent' });

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

/** Gates and access keys that admit turns, and what they were asked. */
function createAdmission() {
  const asked: GateRequest[] = [];
  const counts = { settled: 0, taken: 0, returned: 0 };
  const refusals: { gate?: Error; access?: Error; onGate?: () => void } = {};
  const watches: ((error: OracleError) => void)[] = [];
  const settle = async () => {
    counts.settled += 1;
  };
  const gates: Pick<Gates, 'admit'> = {
    admit: async (request) => {
      asked.push(request);
      refusals.onGate?.();
      if (refusals.gate) throw refusals.gate;
      return new TurnAccount({ check: async () => {}, add: () => {}, settle });
    },
  };
  const access: Pick<TurnAccess, 'admit' | 'release' | 'watch'> = {
    admit: async () => {
      if (refusals.access) throw refusals.access;
      counts.taken += 1;
    },
    release: async () => {
      counts.returned += 1;
    },
    watch: (_caller, _live, onEnded) => void watches.push(onEnded),
  };
  return {
    ...{ asked, counts, refusals, watches },
    gates: gates as Gates,
    access: access as TurnAccess,
  };
}

function createTurns({ runs = test.store.runs, onFlush, ...settings }: Options = {}) {
  const { hostId } = runs;
  const bus = new MemoryHostBus(hostId, logger);
  const sent = vi.spyOn(bus, 'send');
  const changes: string[] = [];
  const publish: SessionChanges['publish'] = (_, change) => void changes.push(change);
  const { runner, ...running } = createRunner();
  const { gates, access, ...admission } = createAdmission();
  const main = new ScriptedModel();
  const models: Pick<Models, 'get' | 'find'> = {
    get: () => main,
    find: (id) => (id === 'large' ? main : undefined),
  };
  const turns = new Turns({
    store: { ...test.store, runs },
    cluster: { hostId, bus, liveness: new SoleHost(hostId), close: async () => {} },
    ...{ gates, access, runner, logger, onFlush },
    models: models as Models,
    events: new MemoryEventBus(),
    changes: { publish } as Pick<SessionChanges, 'publish'> as SessionChanges,
    settings: { maxPerUser: 10, max: 10, storeWaitMs: 60_000, resumesTurns: false, ...settings },
  });
  return { turns, bus, sent, changes, ...running, ...admission };
}

type RequestChanges = Partial<Omit<TurnRequest, 'message'>> & Partial<TurnRequest['message']>;

function ask({ owner, sessionId }: SessionKey, changes: RequestChanges = {}): TurnRequest {
  const { multitask = 'enqueue', model, message = 'hi', ...more } = changes;
  return {
    caller: {
      did: owner,
      expiration: Number.POSITIVE_INFINITY,
      presentedDelegation: undefined,
      loginCids: [],
    },
    sessionId,
    requestId: 'request',
    message: { message, multitask, model },
    user: {},
    client: 'api',
    ...more,
  };
}

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
  await expect(turns.start(ask(await open()))).resolves.toEqual(expect.any(String));
  await turns.close(0, 60_000);
}

describe('Turns.start refuses', () => {
  it('a model that the host does not list, before gates are asked', async () => {
    const session = await open();
    const host = createTurns();
    const refused = host.turns.start(ask(session, { model: 'unknown' }));
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
    const refused = host.turns.start(ask({ owner, sessionId }));
    await expect(refused).rejects.toMatchObject({ code: 'session_not_found' });
    expect([host.asked, host.counts.taken]).toEqual([[], 0]);
    await expectRoom(host);
  });

  it('a turn that the access key does not permit, before gates are asked', async () => {
    const session = await open();
    const host = createTurns({ max: 1 });
    host.refusals.access = new OracleError('access_key_too_narrow');
    await expect(host.turns.start(ask(session))).rejects.toBe(host.refusals.access);
    expect([host.asked, host.counts.returned]).toEqual([[], 0]);
    expect(await countStored(session)).toEqual(NOTHING);
    delete host.refusals.access;
    await expectRoom(host);
  });

  it('a turn that a gate refuses, which does not count for the access key', async () => {
    const session = await open();
    const host = createTurns({ max: 1 });
    host.refusals.gate = new OracleError('insufficient_credit');
    await expect(host.turns.start(ask(session))).rejects.toBe(host.refusals.gate);
    expect(host.counts).toEqual({ settled: 0, taken: 1, returned: 1 });
    expect(await countStored(session)).toEqual(NOTHING);
    delete host.refusals.gate;
    await expectRoom(host);
  });

  it('a message that asks to be rejected while a turn runs, and settles its account', async () => {
    const session = await open();
    const host = createTurns();
    await host.turns.start(ask(session));
    const refused = host.turns.start(ask(session, { multitask: 'reject' }));
    await expect(refused).rejects.toMatchObject({ code: 'turn_running' });
    expect(host.counts).toEqual({ settled: 1, taken: 2, returned: 1 });
    expect(host.turns.count()).toEqual({ running: 1, queued: 0 });
    await host.turns.close(0, 60_000);
    await expect(host.turns.start(ask(session))).rejects.toMatchObject({ code: 'host_stopping' });
  });

  it('a message that a gate admits only after the host has begun to stop', async () => {
    const session = await open();
    const host = createTurns();
    let closed: Promise<boolean> | undefined;
    host.refusals.onGate = () => {
      closed = host.turns.close(0, 60_000);
    };
    const refused = host.turns.start(ask(session));
    await expect(refused).rejects.toMatchObject({ code: 'host_stopping', retryAfterSeconds: 5 });
    expect(host.counts).toEqual({ settled: 1, taken: 1, returned: 1 });
    expect(await countStored(session)).toEqual(NOTHING);
    expect(await closed).toBe(true);
  });

  it('a turn that cannot be stored, even if it has begun while the disk writes', async () => {
    const session = await open();
    const runs = wrapRuns();
    runs.start = async (request) => {
      await test.store.runs.start(request);
      throw new Error('not on disk');
    };
    const host = createTurns({ runs, max: 1 });
    await expect(host.turns.start(ask(session))).rejects.toThrow('not on disk');
    expect(host.counts).toMatchObject({ taken: 1, returned: 1 });
    await vi.waitFor(() => expect(host.turns.listLive()).toEqual([]));
    const [job] = host.jobs.values();
    expect(await job?.live.outcome).toMatchObject({
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
    const runs = wrapRuns();
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
    await expect(host.turns.start(ask(session))).rejects.toThrow('unreadable');
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
    await expect(host.turns.start(ask(await open()))).rejects.toThrow('not on disk');
    expect(unhandled).not.toHaveBeenCalled();
    delete (runs as Partial<RunStore>).start;
    await expectRoom(host);
  });

  it('asks gates about the user, the session, the length and the model of the message', async () => {
    const { owner, sessionId } = await open();
    const host = createTurns();
    const about = { owner, sessionId, requestId: 'request' };
    await host.turns.start(ask({ owner, sessionId }));
    await host.turns.start(ask({ owner, sessionId }, { model: 'large', message: 'longer' }));
    expect(host.asked).toEqual([
      { ...about, model: 'scripted/model', length: 2 },
      { ...about, model: 'large', length: 6 },
    ]);
    await host.turns.close(0, 60_000);
  });

  it('returns the run of another host that was first with the same key, and keeps nothing', async () => {
    const session = await open();
    const runs = wrapRuns();
    runs.start = async () => ({ state: 'existing', runId: 'theirs' });
    const host = createTurns({ runs, max: 1 });
    expect(await host.turns.start(ask(session, { idempotencyKey: 'key' }))).toBe('theirs');
    expect(host.counts).toEqual({ settled: 1, taken: 1, returned: 1 });
    delete (runs as Partial<RunStore>).start;
    await expectRoom(host);
  });

  it('stores the key of a request, so that its repetition finds the run', async () => {
    const session = await open();
    const host = createTurns();
    const request = ask(session, { idempotencyKey: 'key' });
    const runId = await host.turns.start(request);
    expect(await host.turns.start(request)).toBe(runId);
    expect(host.asked).toHaveLength(1);
    await host.turns.close(0, 60_000);
  });

  it('answers a stored question again', async () => {
    const session = await open();
    const host = createTurns();
    const runId = await host.turns.start(ask(session, { message: 'the question' }));
    const live = host.turns.findLive({ owner: session.owner, runId });
    host.finish(runId);
    await live?.outcome;
    const asked = await test.store.messages.recent({
      ...session,
      branch: 0,
      throughTurn: 1,
      bytes: 10_000,
    });
    const questionId = asked[0]?.id ?? '';
    const again = await host.turns.start(ask(session, { message: '', origin: { questionId } }));
    expect(host.jobs.get(again)?.request.message.message).toBe('the question');
    await host.turns.close(0, 60_000);
  });

  it('counts a turn as executing from its admission on', async () => {
    const session = await open();
    const runs = wrapRuns();
    runs.newId = () => crypto.randomUUID();
    const newId = vi.spyOn(runs, 'newId');
    const host = createTurns({ runs });
    const states: boolean[] = [];
    const isExecuting = () => host.turns.isExecuting(`${newId.mock.results[0]?.value}`);
    host.refusals.onGate = () => states.push(isExecuting());
    const runId = await host.turns.start(ask(session));
    const live = host.turns.findLive({ owner: session.owner, runId });
    states.push(isExecuting());
    host.finish(runId);
    await live?.outcome;
    await vi.waitFor(() => expect(isExecuting()).toBe(false));
    expect(states).toEqual([true, true]);
    expect(host.turns.isExecuting('unknown')).toBe(false);
  });

  it('cancels the turns that it interrupts, here and on other hosts', async () => {
    const [mine, theirs] = [await open(), await open()];
    const another = await test.another();
    const host = createTurns();
    const first = await host.turns.start(ask(mine));
    const live = host.turns.findLive({ owner: mine.owner, runId: first });
    await host.turns.start(ask(mine, { multitask: 'interrupt' }));
    expect(await live?.outcome).toMatchObject({
      status: 'interrupted',
      error: { code: 'turn_interrupted' },
    });
    expect(host.sent).not.toHaveBeenCalled();
    const { run } = await startTestRun(another, theirs);
    await host.turns.start(ask(theirs, { multitask: 'interrupt' }));
    expect(host.sent.mock.calls).toEqual([
      [another.runs.hostId, 'run-canceled', { runId: run.id, reason: 'interrupted' }],
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
      data: new Map(),
      steps: [],
      request: {},
      ending: { message: { content: '', isComplete: false } },
    });
    expect(paused.state).toBe('paused');
    const host = createTurns();
    const waiting = await host.turns.start(ask(session, { waitsForPaused: true }));
    expect(host.turns.count()).toEqual({ running: 0, queued: 1 });
    await host.turns.start(ask(session));
    await vi.waitFor(() => expect(host.jobs.has(waiting)).toBe(true));
    await host.turns.interruptAll(session);
    await host.turns.close(0, 60_000);
  });
});
