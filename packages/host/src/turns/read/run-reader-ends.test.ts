import { OracleError } from '@sibyl/protocol';
import { pino } from 'pino';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { replaceSleep } from '../../../test/support/replaced-sleep.js';
import { createActiveRun } from '../../../test/support/test-active-run.js';
import { useStore } from '../../../test/support/test-database.js';
import { createQuestion } from '../../../test/support/test-interrupts.js';
import { finishTestRun, flushFrames, startTestRun } from '../../../test/support/test-runs.js';
import { MemoryHostBus } from '../../bus/host-bus.js';
import type { Frame } from '../../store/runs/frames.js';
import type { Store } from '../../store/store.js';
import { ActiveRun } from '../run/active-run.js';
import { buildHandover } from '../run/run-end.js';
import type { Turns } from '../turns.js';
import { RunFeeds } from './run-feeds.js';
import { RunReader } from './run-reader.js';

const never = new AbortController().signal;

/** A reader in a process that executes this run, or none. */
function createReader(store: Store, live?: ActiveRun) {
  const turns = { findActive: () => live } as Pick<Turns, 'findActive'> as Turns;
  const bus = new MemoryHostBus('reader', pino({ level: 'silent' }));
  return new RunReader(turns, store, new RunFeeds(bus));
}

/** The batches of a reader, each with the numbers and names of its frames. */
async function collect(batches: AsyncIterable<readonly Frame[]>): Promise<string[][]> {
  const seen: string[][] = [];
  for await (const batch of batches) seen.push(batch.map(({ seq, event }) => `${seq} ${event}`));
  return seen;
}

const frame = (seq: number, event: string, data: object = {}): Frame => ({
  ...{ seq, event, data: JSON.stringify(data) },
});

describe('RunReader with a run that was aborted while it is read', () => {
  const test = useStore('sqlite');

  async function abortLive() {
    const { run } = await startTestRun(test.store);
    const live = createActiveRun(run);
    live.log.add('message', '{}');
    live.log.add('message', '{}');
    live.log.add('done', '{"status":"aborted"}');
    live.log.close();
    return { run, reader: createReader(test.store, live) };
  }

  it('delays its end by 300 ms, and nothing that precedes it', async () => {
    const delays = replaceSleep(async () => undefined);
    const { run, reader } = await abortLive();
    expect(await collect(reader.read(run, 0, never))).toEqual([
      ['1 message', '2 message'],
      ['3 done'],
    ]);
    expect(delays).toEqual([300]);
  });

  it('yields no empty batch to a reader that has seen all but the end', async () => {
    replaceSleep(async () => undefined);
    const { run, reader } = await abortLive();
    expect(await collect(reader.read(run, 2, never))).toEqual([['3 done']]);
  });

  it('stops waiting when the reader leaves', async () => {
    const delays = replaceSleep(
      (signal) =>
        new Promise((_, reject) => {
          signal?.addEventListener('abort', () => reject(signal.reason), { once: true });
        }),
    );
    const { run, reader } = await abortLive();
    const leave = new AbortController();
    const reading = collect(reader.read(run, 0, leave.signal));
    await expect.poll(() => delays).toEqual([300]);
    leave.abort();
    expect(await reading).toEqual([['1 message', '2 message'], ['3 done']]);
  });

  it.each([
    ['its end, however late it is stored, if the reader lost access', true],
    ['nothing more if the reader left', false],
  ])('yields %s', async (_, lostAccess) => {
    const { run } = await startTestRun(test.store);
    const live = createActiveRun(run);
    live.log.add('message', '{}');
    const limit = new AbortController();
    const reading = collect(createReader(test.store, live).read(run, 0, limit.signal));
    live.cancel('aborted', new OracleError('access_revoked'));
    limit.abort(lostAccess ? new OracleError('access_revoked') : undefined);
    await Promise.resolve();
    live.log.add('done', '{"status":"aborted"}');
    live.log.close();
    expect(await reading).toEqual(lostAccess ? [['1 message'], ['2 done']] : [['1 message']]);
  });

  it('yields nothing more of a run that continues to a reader that lost access', async () => {
    const { run } = await startTestRun(test.store);
    const live = createActiveRun(run);
    live.log.add('message', '{}');
    const limit = new AbortController();
    const reading = collect(createReader(test.store, live).read(run, 0, limit.signal));
    limit.abort(new OracleError('access_revoked'));
    live.log.add('message', '{}');
    expect(await reading).toEqual([['1 message']]);
  });

  it('delays nothing of an answer whose last frame is not its end', async () => {
    const delays = replaceSleep(async () => undefined);
    const { run } = await startTestRun(test.store);
    const live = createActiveRun(run);
    live.log.add('message', '{"status":"aborted"}');
    live.log.close();
    const reader = createReader(test.store, live);
    expect(await collect(reader.read(run, 0, never))).toEqual([['1 message']]);
    expect(delays).toEqual([]);
  });
});

describe('RunReader.outcome of a turn with several attempts', () => {
  const test = useStore('sqlite');

  it('waits for the attempt that continues the turn after a crash', async () => {
    const { run, key } = await startTestRun(test.store);
    const waiting = createReader(test.store).outcome(run, never);
    const heir = await test.another();
    const next = await heir.runs.resume(run, buildHandover(run, ''));
    if (!next) throw new Error('The turn was not continued.');
    await finishTestRun(heir.runs, { ...key, runId: next.runId }, { content: 'answer' });
    expect(await waiting).toMatchObject({ status: 'finished', text: 'answer' });
  });

  it('is the pause of an attempt that waited for an answer, also once there is one', async () => {
    const { runs } = test.store;
    const { key } = await startTestRun(test.store);
    const question = createQuestion('question');
    const pending = [{ id: question.id, kind: question.kind }];
    const message = { content: 'half', isComplete: false };
    await runs.pause({
      ...{ ...key, interrupts: [question], steps: [], request: {}, limit: 10 },
      end: { message, report: { pending } },
    });
    const { owner } = key;
    await runs.endInterrupt({ owner, interruptId: question.id, status: 'answered', value: 1 });
    const reader = createReader(test.store);
    const outcome = await reader.outcome(await reader.find(key), never);
    expect(outcome).toMatchObject({ status: 'interrupted', text: 'half', pending });
  });
});

describe('RunReader with a client that leaves', () => {
  const test = useStore('sqlite');

  function spyOnReads() {
    const reads = vi.spyOn(test.store.runs, 'framePages');
    onTestFinished(() => reads.mockRestore());
    return reads;
  }

  it('returns no outcome of a run that is still running, though it has frames', async () => {
    const { run, key } = await startTestRun(test.store);
    await flushFrames(test.store.runs, key, [frame(1, 'message'), frame(2, 'message')]);
    const reads = spyOnReads();
    const leave = new AbortController();
    const waiting = createReader(test.store).outcome(run, leave.signal);
    await expect.poll(() => reads).toHaveBeenCalledTimes(1);
    leave.abort();
    expect(await waiting).toBeUndefined();
  });

  it('returns the outcome of a run that has ended even then, without its frames', async () => {
    const { key } = await startTestRun(test.store);
    await finishTestRun(test.store.runs, key, { content: 'answer', frames: [frame(1, 'done')] });
    const reads = spyOnReads();
    const reader = createReader(test.store);
    const ended = await reader.find(key);
    const outcome = await reader.outcome(ended, AbortSignal.abort());
    expect(outcome).toMatchObject({ status: 'finished', text: 'answer' });
    expect(await reader.outcome(ended, never)).toEqual(outcome);
    expect(reads).not.toHaveBeenCalled();
  });

  it('reads nothing for one that has left before', async () => {
    const { run, key } = await startTestRun(test.store);
    await flushFrames(test.store.runs, key, [frame(1, 'message')]);
    const reads = spyOnReads();
    expect(await collect(createReader(test.store).read(run, 0, AbortSignal.abort()))).toEqual([]);
    expect(reads).not.toHaveBeenCalled();
  });
});

describe('RunReader after the log of a run was pruned', () => {
  let now = Date.UTC(2030, 0, 1);
  const test = useStore('sqlite', { clock: () => now });

  /** A run that ended with three frames, which are deleted. */
  async function prune(content: string) {
    const { run, key } = await startTestRun(test.store);
    const frames = [frame(1, 'message'), frame(2, 'message'), frame(3, 'done')];
    await finishTestRun(test.store.runs, key, { status: 'finished', content, frames });
    const endedAt = now;
    now += 1000;
    await test.forAllUsers(() => test.store.runs.pruneFrames({ endedBefore: now }));
    return { run, endedAt };
  }

  async function read(run: Parameters<RunReader['read']>[0], after: number) {
    const frames: { seq: number; event: string; data: unknown }[] = [];
    for await (const batch of createReader(test.store).read(run, after, never))
      for (const { data, ...rest } of batch) frames.push({ ...rest, data: JSON.parse(data) });
    return frames;
  }

  it('sends the answer with the time at which the run ended', async () => {
    const { run, endedAt } = await prune('answer');
    const [, message] = await read(run, 2);
    const timestamp = new Date(endedAt).toISOString();
    expect(message).toEqual({ seq: 4, event: 'message', data: { content: 'answer', timestamp } });
  });

  it('sends no text of an empty answer', async () => {
    const { run } = await prune('');
    expect((await read(run, 0)).map(({ seq, event }) => [seq, event])).toEqual([
      [1, 'run'],
      [2, 'done'],
    ]);
  });

  it('sends only the end to a client that has seen everything', async () => {
    const { run } = await prune('answer');
    expect(await read(run, 3)).toEqual([
      {
        ...{ seq: 3, event: 'done' },
        data: { runId: run.runId, messageId: run.messageId, status: 'finished' },
      },
    ]);
  });

  it('the text is empty if the answer was deleted', async () => {
    const { run } = await prune('answer');
    const find = vi.spyOn(test.store.messages, 'find').mockResolvedValue(undefined);
    onTestFinished(() => find.mockRestore());
    const reader = createReader(test.store);
    const stored = await reader.find(run);
    expect(await reader.outcome(stored, never)).toMatchObject({ status: 'finished', text: '' });
    expect((await read(run, 0)).map(({ event }) => event)).toEqual(['run', 'done']);
  });
});
