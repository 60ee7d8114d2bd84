import { pino } from 'pino';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { createActiveRun } from '../../../test/support/test-active-run.js';
import {
  engines,
  newOwner,
  type TestStore,
  useStore,
} from '../../../test/support/test-database.js';
import { finishTestRun, flushFrames, startTestRun } from '../../../test/support/test-runs.js';
import { MemoryHostBus } from '../../bus/host-bus.js';
import type { Frame } from '../../store/runs/frames.js';
import type { Run } from '../../store/runs/run.js';
import type { Store } from '../../store/store.js';
import { ActiveRun } from '../run/active-run.js';
import { endInterrupted } from '../run/run-end.js';
import type { Turns } from '../turns.js';
import { RunFeeds } from './run-feeds.js';
import { RunReader } from './run-reader.js';

/** Turns of a process that does not execute these runs. */
const elsewhere = { findActive: () => undefined } as unknown as Turns;

const startRun = ({ store }: TestStore) => startTestRun(store);

const createReader = (store: Store) =>
  new RunReader(
    elsewhere,
    store,
    new RunFeeds(new MemoryHostBus('reader', pino({ level: 'silent' }))),
  );

const textFrames = (...texts: string[]): Frame[] =>
  texts.map((content, i) => ({
    seq: i + 1,
    event: 'message',
    data: JSON.stringify({ content, timestamp: '2030-01-01T00:00:00.000Z' }),
  }));

describe.each(engines)('RunReader with a run of another process on %s', (engine) => {
  let now = Date.now();
  const test = useStore(engine, { clock: () => now });
  const never = new AbortController().signal;

  async function readAll(run: Parameters<RunReader['read']>[0], after: number) {
    const frames: Frame[] = [];
    const reader = createReader(test.store);
    for await (const batch of reader.read(run, after, never)) frames.push(...batch);
    return frames.map(({ seq, event, data }) => ({ seq, event, data: JSON.parse(data) }));
  }

  it('follows it to its end', async () => {
    const { key, run } = await startRun(test);
    const [one, two] = textFrames('one ', 'two') as [Frame, Frame];
    await flushFrames(test.store.runs, key, [one]);
    const reading = readAll(run, 0);
    await flushFrames(test.store.runs, key, [two]);
    const done = { seq: 3, event: 'done', data: '{"status":"finished"}' };
    await finishTestRun(test.store.runs, key, { status: 'finished', frames: [done] });
    expect((await reading).map(({ seq, event }) => [seq, event])).toEqual([
      [1, 'message'],
      [2, 'message'],
      [3, 'done'],
    ]);
  });

  it('keeps the frames that arrive before those between them and the stored ones are stored', async () => {
    const { key, run } = await startRun(test);
    const frames = textFrames('1', '2', '3', '4', '5');
    await flushFrames(test.store.runs, key, frames.slice(0, 1));
    const bus = new MemoryHostBus('reader', pino({ level: 'silent' }));
    const send = ({ seq, event, data }: Frame) =>
      bus.send('reader', 'run-frames', { runId: run.runId, frames: [[seq, event, data]] });
    const reads = vi.spyOn(test.store.runs, 'framePages');
    onTestFinished(() => reads.mockRestore());
    const leave = new AbortController();
    const seen: number[] = [];
    const reader = new RunReader(elsewhere, test.store, new RunFeeds(bus));
    const reading = (async () => {
      for await (const batch of reader.read(run, 0, leave.signal))
        seen.push(...batch.map(({ seq }) => seq));
    })();
    await expect.poll(() => seen).toEqual([1]);
    for (const frame of frames.slice(2)) send(frame);
    await expect.poll(() => reads.mock.calls.length).toBeGreaterThan(1);
    expect(seen).toEqual([1]);
    await flushFrames(test.store.runs, key, frames.slice(1, 2));
    // The last three were sent, and are not stored.
    await expect.poll(() => seen).toEqual([1, 2, 3, 4, 5]);
    leave.abort();
    await reading;
  });

  it('keeps at most 1 MiB of frames for a reader, which then reads the store', async () => {
    const { run } = await startRun(test);
    const bus = new MemoryHostBus('reader', pino({ level: 'silent' }));
    const reader = new RunFeeds(bus).open(run);
    const data = 'x'.repeat(400_000);
    reader.push([{ seq: 2, event: 'message', data }]);
    reader.push([{ seq: 3, event: 'message', data }]);
    expect(await reader.next(1, 1, never)).toHaveLength(2);
    for (const seq of [4, 5, 6]) reader.push([{ seq, event: 'message', data }]);
    expect(await reader.next(3, 1, never)).toBe('changed');
    expect(await reader.next(3, 1, never)).toBe('silent');
    reader.close();
  });

  it('sends the stored text to a client that saw more than survived a crash', async () => {
    const { key, run } = await startRun(test);
    await flushFrames(test.store.runs, key, textFrames('stored ', 'too'));
    const heir = await test.another();
    await heir.runs.close((await heir.runs.find(key)) as Run, endInterrupted);
    const stored = 'stored too';
    const interrupted = { status: 'interrupted', interrupted: true, partialText: stored };
    expect(await readAll(run, 1)).toMatchObject([
      { seq: 2, data: { content: 'too' } },
      { seq: 1_000_002, event: 'run', data: { resumed: true, partialLength: stored.length } },
      { seq: 1_000_003, event: 'message_cache_invalidation', data: { status: 'done' } },
      { seq: 1_000_004, event: 'done', data: interrupted },
    ]);
    // The frames after the crash have larger numbers than any that the client can have seen.
    for (const after of [2, 3, 9, 1_000_001])
      expect((await readAll(run, after)).map(({ event }) => event)).toEqual([
        'run',
        'message_cache_invalidation',
        'done',
      ]);
  });

  it('sends the answer in one piece after the log was pruned', async () => {
    const { key, run } = await startRun(test);
    const frames = [...textFrames('a long ', 'answer'), { seq: 3, event: 'done', data: '{}' }];
    const message = { content: 'a long answer', isComplete: true };
    await finishTestRun(test.store.runs, key, { status: 'finished', message, frames });
    now += 1000;
    await test.forAllUsers(() => test.store.runs.pruneFrames({ endedBefore: now }));
    for (const after of [0, 1]) {
      expect(await readAll(run, after)).toMatchObject([
        { seq: after + 1, event: 'run', data: { resumed: true, partialLength: 0 } },
        { seq: after + 2, event: 'message', data: { content: 'a long answer' } },
        { seq: after + 3, event: 'done', data: { status: 'finished' } },
      ]);
    }
  });

  it('waits for the stored outcome', async () => {
    const { key, run } = await startRun(test);
    const reader = createReader(test.store);
    const waiting = reader.outcome(run, never);
    const message = { content: 'the answer', isComplete: true };
    await finishTestRun(test.store.runs, key, { status: 'finished', message });
    expect(await waiting).toMatchObject({ status: 'finished', text: 'the answer' });
    await expect(reader.find({ owner: newOwner(), runId: run.runId })).rejects.toMatchObject({
      code: 'run_not_found',
    });
  });

  it('RunReader.outcome ends when the client that waits has left', async () => {
    const { run } = await startRun(test);
    const leave = new AbortController();
    const waiting = createReader(test.store).outcome(run, leave.signal);
    leave.abort();
    expect(await waiting).toBeUndefined();
  });
});

const never = new AbortController().signal;

/** Turns of a process that executes this run. */
const executing = (live: ActiveRun) =>
  ({
    findActive: ({ owner, runId }) =>
      owner === live.run.owner && runId === live.run.runId ? live : undefined,
  }) as Pick<Turns, 'findActive'> as Turns;

const createBus = () => new MemoryHostBus('reader', pino({ level: 'silent' }));

const nextTick = () => new Promise<void>((resolve) => setImmediate(resolve));

async function collect(batches: AsyncIterable<readonly Frame[]>): Promise<Frame[]> {
  const frames: Frame[] = [];
  for await (const batch of batches) frames.push(...batch);
  return frames;
}

describe('RunReader with a run of this process', () => {
  const test = useStore('sqlite');

  async function startLive() {
    const { run, key } = await startRun(test);
    const live = createActiveRun(run);
    const reader = new RunReader(executing(live), test.store, new RunFeeds(createBus()));
    return { live, reader, run, key };
  }

  it('reads its frames from memory, after the position of the reader', async () => {
    const { live, reader, run } = await startLive();
    live.log.add('message', '{}');
    live.log.add('done', '{"status":"finished"}');
    live.log.close();
    expect((await collect(reader.read(run, 0, never))).map(({ seq }) => seq)).toEqual([1, 2]);
    expect((await collect(reader.read(run, 1, never))).map(({ seq }) => seq)).toEqual([2]);
  });

  it('finds the run as it is in memory, and only for its owner', async () => {
    const { reader, run, key } = await startLive();
    expect(await reader.find(key)).toBe(run);
    await expect(reader.find({ ...key, owner: newOwner() })).rejects.toMatchObject({
      code: 'run_not_found',
    });
  });

  it('waits for its outcome, unless the client leaves', async () => {
    const { live, reader, run } = await startLive();
    const leave = new AbortController();
    const left = reader.outcome(run, leave.signal);
    const waiting = reader.outcome(run, never);
    leave.abort();
    expect(await left).toBeUndefined();
    const outcome = { status: 'finished', messageId: 'm', text: 'hi', warnings: [] } as const;
    live.settle(outcome);
    expect(await waiting).toBe(outcome);
  });

  /** When each batch of frames arrived, in milliseconds after the run ended. */
  async function timeEnd(status: string, signal = never, change: Partial<Run> = {}) {
    const { live, reader, run } = await startLive();
    live.log.add('message', '{}');
    live.log.add('done', JSON.stringify({ status }));
    live.log.close();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const events: string[] = [];
    const reading = (async () => {
      for await (const batch of reader.read({ ...run, ...change }, 0, signal))
        events.push(batch.map(({ event }) => event).join());
    })();
    return { events, reading };
  }

  it('shows the end of an aborted run later than what precedes it, to those who read it', async () => {
    const { events, reading } = await timeEnd('aborted');
    await nextTick();
    expect(events).toEqual(['message']);
    await reading;
    expect(events).toEqual(['message', 'done']);
  });

  it('does not delay the end of a run that was not aborted, or was when the reader came', async () => {
    const finished = await timeEnd('finished');
    await finished.reading;
    expect(finished.events).toEqual(['message,done']);
    vi.useRealTimers();
    const ended = await timeEnd('aborted', never, { status: 'aborted' });
    await ended.reading;
    expect(ended.events).toEqual(['message,done']);
  });
});

describe('RunReader with a run that has stopped', () => {
  const test = useStore('sqlite');
  const usage = { input: 3, output: 2, cached: 1 };
  const pending = [{ id: 'question', kind: 'confirmation' }] as const;

  const pauseRun = ({ key }: { key: { owner: string; runId: string } }) =>
    test.store.runs.pause({
      ...key,
      interrupts: [],
      steps: [],
      request: {},
      limit: 10,
      end: {
        usage,
        report: { pending, cost: 0.5 },
        message: { content: 'so', isComplete: false },
      },
    });

  const read = async (run: Run, after: number) =>
    (await collect(createReader(test.store).read(run, after, never))).map(
      ({ seq, event, data }) => ({ seq, event, data: JSON.parse(data) }),
    );

  it('returns what it cost, what it waits for and why it stopped', async () => {
    const paused = await startRun(test);
    await pauseRun(paused);
    const stored = await createReader(test.store).find(paused.key);
    expect(await createReader(test.store).outcome(stored, never)).toEqual({
      status: 'interrupted',
      messageId: paused.run.messageId,
      text: 'so',
      warnings: [],
      usage: expect.objectContaining({ ...usage, cost: 0.5 }),
      error: undefined,
      pending,
    });
    const failed = await startRun(test);
    const warnings = [{ code: 'w', message: 'left out' }];
    const report = { warnings, error: { code: 'turn_too_long', message: 'long' } };
    await finishTestRun(test.store.runs, failed.key, { status: 'failed', report });
    const reader = createReader(test.store);
    expect(await reader.outcome(await reader.find(failed.key), never)).toMatchObject({
      status: 'failed',
      warnings,
      error: { code: 'turn_too_long', message: 'long' },
    });
  });

  it('sends only `done` to a client that has seen all of a paused run', async () => {
    const { run, key } = await startRun(test);
    await flushFrames(test.store.runs, key, textFrames('s', 'o'));
    await pauseRun({ key });
    const data = {
      runId: run.runId,
      messageId: run.messageId,
      status: 'interrupted',
      interrupted: true,
      partialText: 'so',
      pending,
      usage: { inputTokens: 3, outputTokens: 2, cachedTokens: 1, cost: 0.5 },
    };
    expect(await read(run, 2)).toEqual([{ seq: 2, event: 'done', data }]);
  });

  it('says to a client that saw more than is stored which text it keeps', async () => {
    const { run, key } = await startRun(test);
    await flushFrames(test.store.runs, key, textFrames('s', 'o'));
    await pauseRun({ key });
    expect(await read(run, 9)).toMatchObject([
      { seq: 10, event: 'run', data: { resumed: true, attempt: 1, partialLength: 2 } },
      { seq: 11, event: 'done', data: { status: 'interrupted' } },
    ]);
  });

  it.each(['aborted', 'failed', 'interrupted'] as const)(
    'says that a run without frames was %s',
    async (status) => {
      const { run, key } = await startRun(test);
      await finishTestRun(test.store.runs, key, { status });
      expect(await read(run, 0)).toMatchObject([
        { seq: 1, event: 'run', data: { resumed: true, partialLength: 0 } },
        { seq: 2, event: 'done', data: { status, [status]: true, partialText: '' } },
      ]);
    },
  );
});

describe('RunReader with a run of another host', () => {
  const test = useStore('sqlite');

  /** A reader of a run; the bus also plays the host of the run. */
  async function follow() {
    const { run, key } = await startRun(test);
    const bus = new MemoryHostBus(test.store.runs.hostId, pino({ level: 'silent' }));
    const watched: string[] = [];
    bus.on('run-watch', ({ runId }) => watched.push(runId));
    const feeds = new RunFeeds(bus);
    const send = (seq: number, event: string) =>
      bus.send(bus.hostId, 'run-frames', { runId: run.runId, frames: [[seq, event, '{}']] });
    const reads = vi.spyOn(test.store.runs, 'framePages');
    onTestFinished(() => reads.mockRestore());
    const reader = new RunReader(elsewhere, test.store, feeds);
    return { run, key, feeds, watched, send, reads, reader };
  }

  it('asks that host for its frames, and ends with `done` before it is stored', async () => {
    const { run, watched, send, reader, reads } = await follow();
    const seen: string[] = [];
    const reading = (async () => {
      for await (const batch of reader.read(run, 0, never))
        seen.push(...batch.map(({ seq, event }) => `${seq} ${event}`));
    })();
    await expect.poll(() => watched).toEqual([run.runId]);
    await expect.poll(() => reads.mock.results.length).toBe(1);
    send(1, 'message');
    await expect.poll(() => seen).toEqual(['1 message']);
    send(2, 'done');
    await reading;
    expect(seen).toEqual(['1 message', '2 done']);
    expect(reads).toHaveBeenCalledTimes(1);
  });

  it('reports an end that was shown but not stored', async () => {
    const { run, watched, send, reader } = await follow();
    const outcome = reader.outcome(run, never);
    await expect.poll(() => watched).toEqual([run.runId]);
    send(1, 'done');
    const error = { code: 'store_unavailable' };
    expect(await outcome).toMatchObject({ status: 'failed', text: '', error });
  });

  it('asks no host for a run that has stopped', async () => {
    const { run, key, watched, reader } = await follow();
    await finishTestRun(test.store.runs, key);
    await collect(reader.read(run, 0, never));
    expect(watched).toEqual([]);
  });

  it('looks again after 200 ms if the store is about to change, otherwise after 1 s', async () => {
    const { run, feeds, reads, reader } = await follow();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const leave = new AbortController();
    const reading = collect(reader.read(run, 0, leave.signal));
    // Waits without timers, until the reader has one again.
    const expectReads = async (count: number) => {
      await nextTick();
      for (let i = 0; i < 1_000 && vi.getTimerCount() !== 1; i++) await nextTick();
      expect([reads.mock.calls.length, vi.getTimerCount()]).toEqual([count, 1]);
    };
    await expectReads(1);
    feeds.announce(run.runId);
    await expectReads(2);
    await vi.advanceTimersByTimeAsync(199);
    await expectReads(2);
    await vi.advanceTimersByTimeAsync(1);
    await expectReads(3);
    await vi.advanceTimersByTimeAsync(999);
    await expectReads(3);
    await vi.advanceTimersByTimeAsync(1);
    await expectReads(4);
    leave.abort();
    await reading;
  });

  it('leaves no reader behind when the client leaves', async () => {
    const { run, feeds, send, reader } = await follow();
    const opened = vi.spyOn(feeds, 'open');
    const leave = new AbortController();
    const reading = collect(reader.read(run, 0, leave.signal));
    const [feed] = opened.mock.results.map(({ value }) => value);
    leave.abort();
    await reading;
    send(1, 'message');
    await expect(feed.next(0, 1, never)).resolves.toBe('silent');
  });
});
