import type { GateRequest } from '@sibyl/plugin-kit';
import type { OracleError } from '@sibyl/protocol';
import { pino } from 'pino';
import { vi } from 'vitest';
import { MemoryEventBus, type SessionKey } from '../../src/bus/event-bus.js';
import { type HostLiveness, MemoryHostBus } from '../../src/bus/host-bus.js';
import type { SessionChanges } from '../../src/bus/session-changes.js';
import type { Models } from '../../src/models/models.js';
import type { RunStore } from '../../src/store/runs/run-store.js';
import type { Store } from '../../src/store/store.js';
import type { ActiveRun } from '../../src/turns/run/active-run.js';
import type { RunOutcome } from '../../src/turns/run/run-end.js';
import type { RunExecutor } from '../../src/turns/run/run-executor.js';
import { buildDoneFrame } from '../../src/turns/run/run-log.js';
import { type Gates, TurnAccount } from '../../src/turns/start/gates.js';
import type { TurnAccess } from '../../src/turns/start/turn-access.js';
import type { TurnRequest } from '../../src/turns/turn-request.js';
import { Turns } from '../../src/turns/turns.js';
import { ScriptedModel } from './agent/scripted-model.js';
import { openTestSession } from './test-runs.js';

type Settings = ConstructorParameters<typeof Turns>[0]['settings'];

export interface TestTurnsOptions extends Partial<Settings> {
  readonly runs?: RunStore;
  readonly onFlush?: (runs: number, seconds: number) => void;
}

/** A run store whose methods a test may replace. */
export const wrapRuns = ({ runs }: Pick<Store, 'runs'>) => Object.create(runs) as RunStore;

/** Stores the end of a turn as the runner does. */
async function storeEnd(live: ActiveRun): Promise<RunOutcome> {
  const { runId, messageId } = live.run;
  const status = live.cancelReason ?? (live.error ? 'failed' : 'finished');
  const text = 'Hello';
  const message = { content: text, isComplete: status === 'finished' };
  await live.recorder.end({ status, message }, buildDoneFrame({ runId, messageId, status, text }));
  return { status, messageId, text, warnings: [], error: live.error };
}

/** Runs turns until they are canceled or a test finishes them. */
function createExecutor() {
  const jobs = new Map<string, ActiveRun>();
  const ends = new Map<string, () => void>();
  const state: { error?: Error } = {};
  const execute = async (job: ActiveRun) => {
    const { signal, run: stored } = job;
    const ended = Promise.withResolvers<void>();
    jobs.set(stored.runId, job);
    ends.set(stored.runId, ended.resolve);
    signal.addEventListener('abort', () => ended.resolve());
    if (!signal.aborted) await ended.promise;
    if (state.error) throw state.error;
    return storeEnd(job);
  };
  const executor = { execute } as Pick<RunExecutor, 'execute'> as RunExecutor;
  return { executor, jobs, finish: (runId: string) => ends.get(runId)?.(), state };
}

/** Gates and access keys that admit turns until a test says otherwise, and what they were asked. */
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
  const assertKept = async () => {
    if (refusals.access) throw refusals.access;
  };
  const access: Pick<TurnAccess, 'admit' | 'release' | 'watch' | 'assertKept'> = {
    admit: async () => {
      await assertKept();
      counts.taken += 1;
    },
    release: async () => {
      counts.returned += 1;
    },
    watch: (_caller, _live, onEnded) => void watches.push(onEnded),
    assertKept,
  };
  const known = { asked, counts, refusals, watches };
  return { ...known, gates: gates as Gates, access: access as TurnAccess };
}

/** The database of a host, which a test can take away. */
function createLiveness(hostId: string) {
  const onLost: (() => void)[] = [];
  const liveness: HostLiveness = {
    hostId,
    isAlive: true,
    // Its turns stop one millisecond after it notices.
    get lastSeen() {
      return performance.now() - 9_999;
    },
    hostCount: 1,
    isRunning: () => true,
    findDeadHosts: async () => [],
    onHostLost: () => () => {},
    onLost: (listener) => {
      onLost.push(listener);
      return () => {};
    },
    onRegained: () => () => {},
  };
  const disconnect = () => {
    for (const listener of onLost) listener();
  };
  return { liveness, disconnect };
}

/** The turns of a host on a real store, and everything that a test may look at or change. */
export function createTestTurns(store: Store, options: TestTurnsOptions = {}) {
  const { runs = store.runs, onFlush, ...settings } = options;
  const { hostId } = runs;
  const lines: { level: number; runId?: string; did?: string }[] = [];
  const logger = pino({ base: null }, { write: (line) => lines.push(JSON.parse(line)) });
  const bus = new MemoryHostBus(hostId, logger);
  const sent = vi.spyOn(bus, 'send');
  const events = new MemoryEventBus();
  const changes: string[] = [];
  const publish: SessionChanges['publish'] = (_, change) => void changes.push(change);
  const { executor, ...running } = createExecutor();
  const { gates, access, ...admission } = createAdmission();
  const { liveness, disconnect } = createLiveness(hostId);
  const main = new ScriptedModel();
  const models: Pick<Models, 'get' | 'find'> = {
    get: () => main,
    find: (id) => (id === 'large' ? main : undefined),
  };
  const turns = new Turns({
    store: { ...store, runs },
    cluster: { hostId, bus, liveness, close: async () => {} },
    ...{ gates, access, executor, events, logger, onFlush },
    holders: { find: async (owner) => ({ owner, address: owner, isKnown: true }) },
    models: models as Models,
    changes: { publish } as Pick<SessionChanges, 'publish'> as SessionChanges,
    settings: { maxPerUser: 10, max: 10, storeWaitMs: 60_000, resumesTurns: false, ...settings },
  });
  return { turns, bus, sent, events, changes, lines, disconnect, ...running, ...admission };
}

export type RequestChanges = Partial<Omit<TurnRequest, 'message'>> &
  Partial<TurnRequest['message']>;

/** A message of the owner of a session. */
export function createTurnRequest(
  { owner, sessionId }: SessionKey,
  changes: RequestChanges = {},
): TurnRequest {
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

/** A running turn of a host and one that waits for it. */
export async function startTwoTurns(store: Store, options: TestTurnsOptions = {}) {
  const session = await openTestSession(store);
  const host = createTestTurns(store, options);
  const { owner } = session;
  const start = () => host.turns.start(createTurnRequest(session));
  const first = { owner, runId: await start() };
  const second = { owner, runId: await start() };
  const waiting = host.turns.findActive(second);
  if (!waiting) throw new Error('The second turn is not queued.');
  return { ...host, session, first, second, waiting };
}

export const closeTurns = ({ turns }: { readonly turns: Turns }) => turns.close(0, 60_000);
