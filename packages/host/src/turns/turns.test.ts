import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import { MemoryEventBus } from '../bus/event-bus.js';
import { MemoryHostBus, SoleHost } from '../bus/host-bus.js';
import type { Session } from '../store/session-store.js';
import type { Store } from '../store/store.js';
import type { ActiveRun } from './run/active-run.js';
import type { TurnRequest } from './turn-request.js';
import { Turns } from './turns.js';

/** Turns on a real store that run until they are canceled; sessions are known in advance, so that finding them takes no time. */
function createTurns(
  store: Pick<Store, 'runs' | 'idempotency'>,
  sessions: readonly Session[],
  { max = 1, onAborted = () => {} }: { max?: number; onAborted?: (live: ActiveRun) => void } = {},
) {
  const account = { settle: async () => undefined };
  const interrupted = { status: 'interrupted', messageId: undefined, text: '', warnings: [] };
  const execute = async (live: ActiveRun) => {
    const aborted = Promise.withResolvers<void>();
    live.signal.addEventListener('abort', () => aborted.resolve());
    if (!live.signal.aborted) await aborted.promise;
    onAborted(live);
    await store.runs.finish({
      owner: live.run.owner,
      runId: live.run.runId,
      end: { status: 'interrupted', message: { content: '', isComplete: false } },
      takesNext: true,
    });
    return interrupted;
  };
  const find = async ({ sessionId }: { sessionId: string }) =>
    sessions.find(({ sessionId: id }) => id === sessionId);
  return new Turns({
    store: { runs: store.runs, idempotency: store.idempotency, sessions: { get: find } },
    cluster: {
      hostId: store.runs.hostId,
      bus: new MemoryHostBus(store.runs.hostId, pino({ level: 'silent' })),
      liveness: new SoleHost(store.runs.hostId),
    },
    gates: { admit: async () => account },
    access: {
      watch: () => undefined,
      admit: async () => undefined,
      release: async () => undefined,
    },
    executor: { execute },
    models: { get: () => ({ id: 'main' }) },
    events: new MemoryEventBus(),
    changes: { publish: () => undefined },
    logger: pino({ level: 'silent' }),
    settings: { maxPerUser: max, max, storeWaitMs: 1000 },
  } as unknown as ConstructorParameters<typeof Turns>[0]);
}

const requestFor = (
  { owner, sessionId: id }: Session,
  multitask: 'enqueue' | 'interrupt' = 'enqueue',
) =>
  ({
    caller: { did: owner, holder: { owner, address: owner, isKnown: true } },
    sessionId: id,
    requestId: 'r',
    message: { message: 'hi', multitask },
    user: {},
    client: 'api',
  }) as unknown as TurnRequest;

describe.each(engines)('Turns.start with multitask "interrupt" on %s', (engine) => {
  const test = useStore(engine);

  it('receives the slot of the turn it interrupts, even if another message asks for one at the same time', async () => {
    const open = () => test.store.sessions.create({ owner: newOwner(), oracleDid: 'did:key:zO' });
    const [mine, theirs] = await Promise.all([open(), open()]);
    const turns = createTurns(test.store, [mine, theirs]);
    const runId = await turns.start(requestFor(mine));
    const other = turns
      .findActive({ owner: mine.owner, runId })
      ?.outcome.then(() => turns.start(requestFor(theirs)))
      .catch((error: unknown) => error);
    const second = await turns.start(requestFor(mine, 'interrupt'));
    expect(second).not.toBe(runId);
    expect(await other).toMatchObject({ code: 'host_busy' });
    await turns.interruptAll(mine);
    // The slot is free again, once.
    await expect(turns.start(requestFor(theirs))).resolves.toEqual(expect.any(String));
    await expect(turns.start(requestFor(mine))).rejects.toMatchObject({ code: 'host_busy' });
    await turns.close(0, 60_000);
  });
});

describe.each(engines)('Turns.close on %s', (engine) => {
  const test = useStore(engine);

  it('does not drop a queued turn that begins while the others are released', async () => {
    const session = await test.store.sessions.create({
      owner: newOwner(),
      oracleDid: 'did:key:zO',
    });
    const { owner } = session;
    const message = { content: '', isComplete: true };
    const runs = Object.create(test.store.runs) as Store['runs'];
    const reasons: unknown[] = [];
    const turns = createTurns({ runs, idempotency: test.store.idempotency }, [session], {
      max: 10,
      onAborted: ({ cancelReason }) => reasons.push(cancelReason),
    });
    const first = await turns.start(requestFor(session));
    const second = await turns.start(requestFor(session));
    runs.release = async (hostId) => {
      const ending = { status: 'finished', message } as const;
      const ended = await runs.finish({ owner, runId: first, end: ending, takesNext: true });
      if (ended?.next) turns.startOrForward(ended.next);
      return test.store.runs.release(hostId);
    };
    await turns.close(200, 60_000);
    // Both ran until the end of the grace period.
    expect(reasons).toEqual(['interrupted', 'interrupted']);
    expect(await runs.find({ owner, runId: second })).toMatchObject({ status: 'interrupted' });
  });
});

describe.each(engines)('Turns.start of a queued message on %s', (engine) => {
  const test = useStore(engine);

  it('runs it if the turn before it ends while the start is being confirmed', async () => {
    const { sessions, idempotency } = test.store;
    const session = await sessions.create({ owner: newOwner(), oracleDid: 'did:key:zO' });
    const { owner } = session;
    const runs = Object.create(test.store.runs) as Store['runs'];
    const turns = createTurns({ runs, idempotency }, [session], { max: 10 });
    const first = await turns.start(requestFor(session));
    runs.start = async ({ onCommit: _, ...request }) => {
      const result = await test.store.runs.start(request);
      const ending = { status: 'finished', message: { content: '', isComplete: true } } as const;
      const ended = await runs.finish({ owner, runId: first, end: ending, takesNext: true });
      if (ended?.next) turns.startOrForward(ended.next);
      return result;
    };
    const second = await turns.start(requestFor(session));
    expect((await runs.find({ owner, runId: second }))?.status).toBe('running');
    expect(turns.count()).toEqual({ running: 2, queued: 0 });
    await turns.interruptAll({ owner, sessionId: session.sessionId });
    await turns.close(0, 60_000);
  });
});

describe.each(engines)('Turns.startStored on %s', (engine) => {
  const test = useStore(engine);

  it('executes a queued turn whose promotion was stored although the reply of the database was lost', async () => {
    const { runs, sessions } = test.store;
    const session = await sessions.create({ owner: newOwner(), oracleDid: 'did:key:zO' });
    const { owner } = session;
    const turns = createTurns(test.store, [session], { max: 10 });
    const first = await turns.start(requestFor(session));
    const second = await turns.start(requestFor(session));
    expect(turns.isExecuting(second)).toBe(false);
    const ending = { status: 'finished', message: { content: '', isComplete: true } } as const;
    // What it returns, the promoted run, is lost.
    await runs.finish({ owner, runId: first, end: ending, takesNext: true });
    await turns.startStored({ owner, runId: second });
    expect(turns.isExecuting(second)).toBe(true);
    await turns.interruptAll({ owner, sessionId: session.sessionId });
    await turns.close(0, 60_000);
  });
});

describe.each(engines)('Turns.abort on %s', (engine) => {
  const test = useStore(engine);

  it('is stored before it returns, also for a turn of this host: no other host continues it', async () => {
    const { sessions, idempotency } = test.store;
    const session = await sessions.create({ owner: newOwner(), oracleDid: 'did:key:zO' });
    const { owner, sessionId } = session;
    const runs = Object.create(test.store.runs) as Store['runs'];
    const mayEnd = Promise.withResolvers<void>();
    runs.finish = async (request) => {
      await mayEnd.promise;
      return test.store.runs.finish(request);
    };
    const turns = createTurns({ runs, idempotency }, [session]);
    const runId = await turns.start(requestFor(session));
    expect(await turns.abort({ owner, sessionId })).toBe(true);
    expect(await runs.find({ owner, runId })).toMatchObject({ cancelReason: 'aborted' });
    mayEnd.resolve();
    await turns.close(0, 60_000);
  });
});
