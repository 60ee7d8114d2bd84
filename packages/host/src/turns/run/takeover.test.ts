import { pino } from 'pino';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { useStore } from '../../../test/support/test-database.js';
import { finishTestRun, flushFrames, startTestRun } from '../../../test/support/test-runs.js';
import { endOfRun, MemoryEventBus, type ServerEvent } from '../../bus/event-bus.js';
import { type HostLiveness, MemoryHostBus } from '../../bus/host-bus.js';
import type { Run } from '../../store/runs/run.js';
import type { RunStore } from '../../store/runs/run-store.js';
import type { RunKey } from '../../store/schema/runs.js';
import type { PausedTurns } from '../answer/paused-turns.js';
import type { Turns } from '../turns.js';
import { Takeover } from './takeover.js';

/** What operators see, without debug messages. */
interface LogLine {
  readonly level: number;
  readonly runId?: string;
  readonly did?: string;
  readonly hostId?: string;
}
const WARN = 40;
const ERROR = 50;

/** The turns of this host: remembers what it is asked to do. */
function createTurns() {
  const state = { live: [] as Run[], executing: new Set<string>(), hasRoom: true };
  const done: string[] = [];
  const note = (what: string, runId: string) => void done.push(`${what} ${runId}`);
  const turns = {
    listActive: () => state.live,
    isExecuting: (runId: string) => state.executing.has(runId),
    get hasRoom() {
      return state.hasRoom;
    },
    adopt: async (run: Run) => note('adopt', run.runId),
    claim: async (run: Run) => note('claim', run.runId),
    startOrForward: (run: Run) => note('start', run.runId),
    startStored: async ({ runId }: RunKey) => note('startStored', runId),
    cancel: (runId: string, reason: string) => note(`cancel ${reason}`, runId),
    dropLost: async ({ runId }: RunKey) => note('dropLost', runId),
  };
  return { turns: turns as typeof turns & Turns, state, done };
}

/** A takeover of a host whose cluster does what a test says. */
function createTakeover(runs: RunStore, { resumes = false, dead = [] as readonly string[] } = {}) {
  const { turns, state, done } = createTurns();
  const lines: LogLine[] = [];
  const logger = pino({ base: null }, { write: (line) => lines.push(JSON.parse(line)) });
  const listeners: Record<'lost' | 'regained' | 'missed', (() => void)[]> = {
    lost: [],
    regained: [],
    missed: [],
  };
  const asked: string[][] = [];
  const bus = new MemoryHostBus(runs.hostId, logger);
  bus.onMissed = (listener?: () => void) => {
    if (listener) listeners.missed.push(listener);
    return () => {};
  };
  const add = (name: keyof typeof listeners) => (listener: (hostId: string) => void) => {
    listeners[name].push(() => listener('dead'));
    return () => {};
  };
  const liveness: HostLiveness = {
    hostId: runs.hostId,
    isAlive: true,
    lastSeen: 0,
    hostCount: 1,
    isRunning: () => true,
    findDeadHosts: async (hosts) => {
      asked.push([...hosts]);
      return hosts.filter((id) => dead.includes(id));
    },
    onHostLost: add('lost'),
    onLost: () => () => {},
    onRegained: add('regained'),
  };
  const events = new MemoryEventBus();
  const expire = vi.fn(async () => {});
  const onClosed = vi.fn((run: Run) => run.runId);
  const onTakeover = vi.fn();
  const takeover = new Takeover({
    runs,
    turns,
    paused: { expire } as Pick<PausedTurns, 'expire'> as PausedTurns,
    cluster: { hostId: runs.hostId, bus, liveness, close: async () => {} },
    events,
    logger,
    resumes,
    onClosed,
    onTakeover,
  });
  onTestFinished(() => takeover.close());
  const happen = (name: keyof typeof listeners) => {
    for (const listener of listeners[name]) listener();
  };
  const closedIds = () => onClosed.mock.calls.map(([run]) => run.runId);
  return {
    ...{ takeover, events, bus, expire, onTakeover, closedIds },
    ...{ happen, state, done, asked, lines },
  };
}

/** Runs one pass: closing waits for it. */
async function passOnce({ takeover }: ReturnType<typeof createTakeover>): Promise<void> {
  takeover.watch();
  await takeover.close();
}

// Without twins: a takeover works on the runs of all users.
describe('Takeover.start', () => {
  const test = useStore('sqlite', { hasTwins: false });

  const watchEvents = (events: MemoryEventBus, session: { owner: string; sessionId: string }) => {
    const published: ServerEvent[] = [];
    events.subscribe(session, (event) => published.push(event));
    return published;
  };

  it('closes the running turn of a dead host with its partial text, and starts the next one here', async () => {
    const { runs } = test.store;
    const deadHost = await test.another();
    const { run, key, session } = await startTestRun(deadHost);
    const data = JSON.stringify({ content: 'half', timestamp: '2030-01-01T00:00:00.000Z' });
    await flushFrames(deadHost.runs, key, [{ seq: 1, event: 'message', data }]);
    const waiting = await startTestRun(deadHost, session);
    const host = createTakeover(runs, { dead: [deadHost.runs.hostId] });
    const published = watchEvents(host.events, session);
    await host.takeover.start();
    expect(await runs.find(key)).toMatchObject({ status: 'interrupted' });
    const stored = await test.store.messages.find({ owner: run.owner, messageId: run.messageId });
    expect(stored).toMatchObject({ content: 'half', isComplete: false });
    expect(await runs.find(waiting.key)).toMatchObject({ status: 'running', hostId: runs.hostId });
    expect(host.done).toEqual([`start ${waiting.run.runId}`]);
    expect(host.closedIds()).toEqual([run.runId]);
    expect(host.onTakeover.mock.calls).toEqual([['closed']]);
    const about = { runId: run.runId, did: run.owner, hostId: deadHost.runs.hostId };
    expect(host.lines).toMatchObject([{ level: WARN, ...about }]);
    expect(published).toMatchObject([
      {
        event: 'message_cache_invalidation',
        payload: { sessionId: run.sessionId, messageIds: [run.messageId] },
        position: endOfRun(run),
      },
    ]);
    await finishTestRun(runs, waiting.key);
  });

  it('leaves the runs of this host and of others that live', async () => {
    const { runs } = test.store;
    const living = await test.another();
    const theirs = await startTestRun(living);
    const own = await startTestRun(test.store);
    const waiting = await startTestRun(test.store, own.session);
    // Makes the waiting one available to all.
    await runs.release(runs.hostId);
    const host = createTakeover(runs);
    await host.takeover.start();
    expect(host.asked).toEqual([[living.runs.hostId]]);
    expect(await runs.find(theirs.key)).toMatchObject({ status: 'running' });
    await finishTestRun(living.runs, theirs.key);
    await host.takeover.start();
    // It asks about no host if it is the only one with runs.
    expect(host.asked).toHaveLength(1);
    expect(await runs.find(own.key)).toMatchObject({ status: 'running', hostId: runs.hostId });
    expect(host.closedIds()).toEqual([]);
    for (const { key } of [own, waiting]) await finishTestRun(runs, key);
  });

  it('closes all runs of a dead host, however many the store returns at a time', async () => {
    const deadHost = await test.another();
    const started = [];
    for (let i = 0; i < 3; i++) started.push(await startTestRun(deadHost));
    const runs = Object.create(test.store.runs) as RunStore;
    runs.ofHost = async (hostId) => (await test.store.runs.ofHost(hostId)).slice(0, 1);
    const host = createTakeover(runs, { dead: [deadHost.runs.hostId] });
    await host.takeover.start();
    expect(host.closedIds().toSorted()).toEqual(started.map(({ run }) => run.runId).toSorted());
    // Nothing waits in these sessions.
    expect(host.done).toEqual([]);
    expect(host.lines.map(({ level }) => level)).toEqual([WARN, WARN, WARN]);
  });

  it('closes the other runs of a dead host if one of them cannot be closed', async () => {
    const deadHost = await test.another();
    const bad = await startTestRun(deadHost);
    const good = await startTestRun(deadHost);
    const runs = Object.create(test.store.runs) as RunStore;
    runs.close = async (run, end) => {
      if (run.runId === bad.run.runId) throw new Error('broken frames');
      return test.store.runs.close(run, end);
    };
    const host = createTakeover(runs, { dead: [deadHost.runs.hostId] });
    await host.takeover.start();
    expect(host.closedIds()).toEqual([good.run.runId]);
    const errors = host.lines.filter(({ level }) => level === ERROR);
    expect(new Set(errors.map(({ runId, did }) => `${runId} ${did}`))).toEqual(
      new Set([`${bad.run.runId} ${bad.run.owner}`]),
    );
    expect(await runs.find(bad.key)).toMatchObject({ status: 'running' });
    runs.close = test.store.runs.close;
    await host.takeover.start();
    expect(host.closedIds()).toEqual([good.run.runId, bad.run.runId]);
  });

  it('reports nothing about a run that another host closed first', async () => {
    const deadHost = await test.another();
    const { key } = await startTestRun(deadHost);
    const runs = Object.create(test.store.runs) as RunStore;
    runs.close = async (run, end) => {
      await test.store.runs.close(run, end);
      return test.store.runs.close(run, end);
    };
    const host = createTakeover(runs, { dead: [deadHost.runs.hostId] });
    await host.takeover.start();
    expect(await runs.find(key)).toMatchObject({ status: 'interrupted' });
    expect([host.closedIds(), host.onTakeover.mock.calls]).toEqual([[], []]);
  });
});

describe('Takeover.start with RESUME_TURNS', () => {
  const test = useStore('sqlite', { hasTwins: false });

  const resumeFrom = (hostId: string) =>
    createTakeover(test.store.runs, { resumes: true, dead: [hostId] });

  it('continues the turn of a dead host here as its next attempt; its readers keep the text of its steps', async () => {
    const { runs } = test.store;
    const deadHost = await test.another();
    const { run, key } = await startTestRun(deadHost, { isResumable: true });
    const message = { role: 'assistant', text: 'a part' };
    const steps = [{ step: 1, value: { type: 'model', path: '', message } }];
    await deadHost.runs.flush([{ ...key, frames: [], steps }]);
    const host = resumeFrom(deadHost.runs.hostId);
    await host.takeover.start();
    expect(await runs.find(key)).toMatchObject({ status: 'continued' });
    const next = (await runs.latestAttempt(run)) as Run;
    expect(next).toMatchObject({ attempt: 2, status: 'running', hostId: runs.hostId });
    expect(host.done).toEqual([`adopt ${next.runId}`]);
    expect([host.closedIds(), host.onTakeover.mock.calls]).toEqual([[run.runId], [['resumed']]]);
    expect(host.lines).toMatchObject([{ level: WARN, runId: run.runId, did: run.owner }]);
    const frames = await runs.frames({ ...key, after: 0 });
    expect(frames.map(({ event, data }) => [event, JSON.parse(data)])).toMatchObject([
      ['run', { resumed: true, partialLength: 6 }],
      ['done', { status: 'interrupted', partialText: 'a part' }],
    ]);
    await finishTestRun(runs, { owner: run.owner, runId: next.runId });
  });

  it('closes a turn that was canceled', async () => {
    const deadHost = await test.another();
    const { key } = await startTestRun(deadHost, { isResumable: true });
    await deadHost.runs.cancel(key, 'aborted');
    const host = resumeFrom(deadHost.runs.hostId);
    await host.takeover.start();
    expect(await test.store.runs.find(key)).toMatchObject({ status: 'aborted' });
    expect(host.onTakeover.mock.calls).toEqual([['closed']]);
  });

  it('closes a turn whose request is not stored', async () => {
    const deadHost = await test.another();
    const { key } = await startTestRun(deadHost);
    const host = resumeFrom(deadHost.runs.hostId);
    await host.takeover.start();
    expect(await test.store.runs.find(key)).toMatchObject({ status: 'interrupted' });
    expect(host.onTakeover.mock.calls).toEqual([['closed']]);
  });

  it.each([
    [4, 'resumed'],
    [5, 'closed'],
  ])('ends a turn that crashed %s times before as %s', async (crashes, outcome) => {
    const deadHost = await test.another();
    let { run } = await startTestRun(deadHost, { isResumable: true });
    for (let i = 0; i < crashes; i++) run = (await deadHost.runs.resume(run, [])) as Run;
    const host = resumeFrom(deadHost.runs.hostId);
    await host.takeover.start();
    expect(host.onTakeover.mock.calls).toEqual([[outcome]]);
    const last = (await test.store.runs.latestAttempt(run)) as Run;
    if (last.status === 'running') await finishTestRun(test.store.runs, last);
  });
});

describe('Takeover.watch', () => {
  const test = useStore('sqlite', { hasTwins: false });

  /** A run that the end of another host's run has promoted, and that no host has started. */
  async function promote(isReleased: boolean) {
    const { runs } = test.store;
    const other = await test.another();
    const { key, session } = await startTestRun(other);
    const waiting = await startTestRun(test.store, session);
    if (isReleased) await runs.release(runs.hostId);
    await finishTestRun(other.runs, key, {}, false);
    const stored = (await runs.find(waiting.key)) as Run;
    expect([stored.status, stored.startedAt]).toEqual(['running', undefined]);
    return { ...waiting, run: stored };
  }

  it('claims promoted runs that no host has started', async () => {
    const free = await promote(true);
    const own = await promote(false);
    expect([own.run.hostId, free.run.hostId]).toEqual([test.store.runs.hostId, undefined]);
    const host = createTakeover(test.store.runs);
    await passOnce(host);
    expect(host.done).toEqual([`claim ${own.run.runId}`, `claim ${free.run.runId}`]);
    // Without room, only those that no other host can take.
    const full = createTakeover(test.store.runs);
    full.state.hasRoom = false;
    await passOnce(full);
    expect(full.done).toEqual([`claim ${own.run.runId}`]);
    for (const { key, run } of [own, free]) {
      await test.store.runs.claim({ ...key, from: run.hostId });
      await finishTestRun(test.store.runs, key);
    }
  });

  it('reports to its turns what they missed: cancels, and starts whose reply was lost', async () => {
    const { runs } = test.store;
    const executing = await startTestRun(test.store);
    const unknown = await startTestRun(test.store);
    const queued = await startTestRun(test.store, executing.session);
    await runs.cancel(executing.key, 'aborted');
    const host = createTakeover(runs);
    host.state.executing.add(executing.run.runId);
    host.state.live = [executing.run, queued.run];
    await passOnce(host);
    expect(host.done).toEqual([
      `cancel aborted ${executing.run.runId}`,
      `startStored ${unknown.run.runId}`,
    ]);
    for (const { key } of [executing, queued, unknown]) await finishTestRun(runs, key);
  });

  it('lets turns be dropped that the store no longer has at this host', async () => {
    const { runs } = test.store;
    const ended = await startTestRun(test.store);
    await finishTestRun(runs, ended.key);
    const other = await test.another();
    const taken = await startTestRun(other);
    const kept = await startTestRun(test.store);
    const host = createTakeover(runs);
    host.state.executing.add(kept.run.runId);
    host.state.live = [ended.run, taken.run, kept.run];
    await passOnce(host);
    expect(host.done).toEqual([`dropLost ${ended.run.runId}`, `dropLost ${taken.run.runId}`]);
    await finishTestRun(runs, kept.key);
    await finishTestRun(other.runs, taken.key);
  });
});

describe('Takeover.watch passes', () => {
  const test = useStore('sqlite', { hasTwins: false });

  /** Counts passes by their last step, the expiry of questions. */
  function watch() {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    onTestFinished(() => void vi.useRealTimers());
    const host = createTakeover(test.store.runs);
    const passes = async (count: number) => {
      // Not `expect.poll`, which moves fake timers. Another pass would follow at once.
      const isMissing = () => host.expire.mock.calls.length < count;
      for (let i = 0; i < 200 || (isMissing() && i < 1e6); i++)
        await new Promise<void>((resolve) => setImmediate(resolve));
      expect(host.expire).toHaveBeenCalledTimes(count);
    };
    return { ...host, passes };
  }

  it('happen at once, every second, and no more after it is closed', async () => {
    const { takeover, happen, passes } = watch();
    takeover.watch();
    await passes(1);
    vi.advanceTimersByTime(999);
    await passes(1);
    vi.advanceTimersByTime(1);
    await passes(2);
    await takeover.close();
    vi.advanceTimersByTime(5_000);
    happen('lost');
    await passes(2);
  });

  it('happen when a host is lost, after a reconnect, and when a run is available', async () => {
    const { takeover, happen, bus, passes } = watch();
    takeover.watch();
    await passes(1);
    happen('lost');
    await passes(2);
    happen('regained');
    await passes(3);
    happen('missed');
    await passes(4);
    bus.send(bus.hostId, 'run-available', null);
    await passes(5);
  });

  it('happen one at a time; requests during one cause one more', async () => {
    const { takeover, expire, happen, passes } = watch();
    const first = Promise.withResolvers<void>();
    expire.mockImplementationOnce(() => first.promise);
    takeover.watch();
    await passes(1);
    happen('lost');
    happen('lost');
    await passes(1);
    first.resolve();
    await passes(2);
  });

  it('continue after one has failed', async () => {
    const { takeover, expire, happen, passes } = watch();
    expire.mockRejectedValueOnce(new Error('Connection terminated'));
    takeover.watch();
    await passes(1);
    happen('lost');
    await passes(2);
  });

  it('end before close returns', async () => {
    const { takeover, expire, passes } = watch();
    const first = Promise.withResolvers<void>();
    expire.mockImplementationOnce(() => first.promise);
    takeover.watch();
    await passes(1);
    const closed = vi.fn();
    const closing = takeover.close().then(closed);
    await passes(1);
    expect(closed).not.toHaveBeenCalled();
    first.resolve();
    await closing;
  });
});
