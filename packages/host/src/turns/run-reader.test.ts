import { pino } from 'pino';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { engines, newOwner, type TestStore, useStore } from '../../test/support/test-database.js';
import { finishTestRun, flushFrames, startTestRun } from '../../test/support/test-runs.js';
import { BEFORE_ALL, endOfTurn, formatPosition, type Position } from '../bus/event-bus.js';
import { MemoryHostBus } from '../bus/host-bus.js';
import type { Frame } from '../store/runs/frames.js';
import type { Run } from '../store/runs/run.js';
import type { Store } from '../store/store.js';
import { endInterrupted } from './closing-runs.js';
import { RunFeeds } from './run-feeds.js';
import { MissedEvents, RunReader } from './run-reader.js';
import type { Turns } from './turns.js';

/** Turns of a process that does not execute these runs. */
const elsewhere = { findLive: () => undefined } as unknown as Turns;

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
      bus.send('reader', 'run-frames', { runId: run.id, frames: [[seq, event, data]] });
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
    await expect(reader.find({ owner: newOwner(), runId: run.id })).rejects.toMatchObject({
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

const frame = (seq: number, event: string, data: object) => ({
  seq,
  event,
  data: JSON.stringify(data),
});

describe.each(engines)('MissedEvents on %s', (engine) => {
  const now = Date.now();
  const test = useStore(engine, { clock: () => now });

  async function openSession() {
    const owner = newOwner();
    const { id } = await test.store.sessions.create({ owner, oracleDid: 'did:key:zOracle' });
    return { owner, sessionId: id };
  }

  /** A run with a text and a routing step in its log. */
  async function startRun(session: { owner: string; sessionId: string }, step: string) {
    const { key } = await startTestRun(test.store, session);
    const payload = { sessionId: session.sessionId, requestId: 'r', step };
    const frames = [frame(1, 'message', { content: 'x' }), frame(2, 'router_update', payload)];
    await flushFrames(test.store.runs, key, frames);
    return key;
  }

  async function missed(session: { owner: string; sessionId: string }, seen: Position) {
    const events: string[] = [];
    for await (const { event, payload, position } of new MissedEvents(
      elsewhere,
      test.store.runs,
    ).after(session, seen))
      events.push(
        `${position && formatPosition(position)} ${'step' in payload ? payload.step : event}`,
      );
    return events;
  }

  it('yields the events after a position, over all turns since', async () => {
    const session = await openSession();
    const turns = 120;
    for (let turn = 1; turn <= turns; turn++) {
      const key = await startRun(session, `${turn}`);
      const done = frame(3, 'done', {});
      await finishTestRun(test.store.runs, key, { status: 'finished', frames: [done] });
    }
    const all = Array.from({ length: turns }, (_, i) => `${i + 1}.2 ${i + 1}`);
    expect(await missed(session, BEFORE_ALL)).toEqual(all);
    expect(await missed(session, { turn: 5, seq: 1 })).toEqual(all.slice(4));
    expect(await missed(session, { turn: 5, seq: 2 })).toEqual(all.slice(5));
    expect(await missed(session, endOfTurn(turns))).toEqual([]);
    expect(await missed({ ...session, owner: newOwner() }, BEFORE_ALL)).toEqual([]);
    const latest = new MissedEvents(elsewhere, test.store.runs).latest(session);
    expect(await latest).toEqual(endOfTurn(turns));
  });

  it('yields one cache invalidation after a crash', async () => {
    const session = await openSession();
    const key = await startRun(session, 'a');
    const heir = await test.another();
    await heir.runs.close((await heir.runs.find(key)) as Run, endInterrupted);
    const changed = '1.1000003 message_cache_invalidation';
    expect(await missed(session, BEFORE_ALL)).toEqual(['1.2 a', changed]);
    for (const seq of [2, 3, 4, 99, 1_000_002])
      expect(await missed(session, { turn: 1, seq })).toEqual([changed]);
    expect(await missed(session, endOfTurn(1))).toEqual([]);
  });
});
