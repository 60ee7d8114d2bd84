import { describe, expect, it } from 'vitest';
import {
  engines,
  newOwner,
  type TestStore,
  useStore,
} from '../../../test/support/test-database.js';
import type { Frame } from '../../store/runs/frames.js';
import type { Turns } from '../turns.js';
import { endInterrupted } from './interrupted-run.js';
import { RunReader } from './run-reader.js';

/** As a process sees runs that it does not carry out itself. */
const elsewhere = { live: () => undefined } as unknown as Turns;

async function startRun({ store }: TestStore) {
  const owner = newOwner();
  const { id: sessionId } = await store.sessions.create({ owner, oracleDid: 'did:key:zOracle' });
  const message = { content: 'hi' };
  const started = await store.runs.start({
    owner,
    sessionId,
    requestId: 'r',
    status: 'running',
    message,
  });
  if (started.state !== 'started') throw new Error(started.state);
  return { key: { owner, runId: started.run.id }, run: started.run };
}

const textFrames = (...texts: string[]): Frame[] =>
  texts.map((content, i) => ({
    seq: i + 1,
    event: 'message',
    data: JSON.stringify({ content, timestamp: '2030-01-01T00:00:00.000Z' }),
  }));

describe.each(engines)('a run of another process on %s', (engine) => {
  let now = Date.now();
  const test = useStore(engine, { clock: () => now });
  const never = new AbortController().signal;

  async function readAll(run: Parameters<RunReader['read']>[0], after: number) {
    const frames: Frame[] = [];
    const reader = new RunReader(elsewhere, test.store);
    for await (const batch of reader.read(run, after, never)) frames.push(...batch);
    return frames.map(({ seq, event, data }) => ({ seq, event, data: JSON.parse(data) }));
  }

  it('is followed to its end', async () => {
    const { key, run } = await startRun(test);
    const [one, two] = textFrames('one ', 'two') as [Frame, Frame];
    await test.store.runs.appendFrames({ ...key, frames: [one] });
    const reading = readAll(run, 0);
    await test.store.runs.appendFrames({ ...key, frames: [two] });
    const done = { seq: 3, event: 'done', data: '{"status":"finished"}' };
    await test.store.runs.finish({ ...key, ending: { status: 'finished', frames: [done] } });
    expect((await reading).map(({ seq, event }) => [seq, event])).toEqual([
      [1, 'message'],
      [2, 'message'],
      [3, 'done'],
    ]);
  });

  it('tells a client that saw more than a crash left to cut back', async () => {
    const { key, run } = await startRun(test);
    await test.store.runs.appendFrames({ ...key, frames: textFrames('stored ', 'too') });
    const heir = await test.another();
    now += 60_000;
    await heir.runs.closeInterrupted(endInterrupted);
    const stored = 'stored too';
    const interrupted = { status: 'interrupted', interrupted: true, partialText: stored };
    expect(await readAll(run, 1)).toMatchObject([
      { seq: 2, data: { content: 'too' } },
      { seq: 3, event: 'message_cache_invalidation', data: { status: 'done' } },
      { seq: 4, event: 'done', data: interrupted },
    ]);
    for (const after of [3, 4])
      expect(await readAll(run, after)).toMatchObject([
        { seq: 4, event: 'done', data: interrupted },
      ]);
    expect(await readAll(run, 9)).toMatchObject([
      { seq: 10, event: 'run', data: { resumed: true, partialLength: stored.length } },
      { seq: 11, event: 'done', data: interrupted },
    ]);
  });

  it('is told in one piece once its log is gone', async () => {
    const { key, run } = await startRun(test);
    const frames = [...textFrames('a long ', 'answer'), { seq: 3, event: 'done', data: '{}' }];
    const message = { content: 'a long answer', isComplete: true };
    await test.store.runs.finish({ ...key, ending: { status: 'finished', message, frames } });
    now += 1000;
    await test.store.runs.pruneFrames({ endedBefore: now });
    for (const after of [0, 1]) {
      expect(await readAll(run, after)).toMatchObject([
        { seq: after + 1, event: 'run', data: { resumed: true, partialLength: 0 } },
        { seq: after + 2, event: 'message', data: { content: 'a long answer' } },
        { seq: after + 3, event: 'done', data: { status: 'finished' } },
      ]);
    }
  });

  it('is waited for, and its outcome is the stored one', async () => {
    const { key, run } = await startRun(test);
    const reader = new RunReader(elsewhere, test.store);
    const waiting = reader.outcome(run, never);
    const message = { content: 'the answer', isComplete: true };
    await test.store.runs.finish({ ...key, ending: { status: 'finished', message } });
    expect(await waiting).toMatchObject({ status: 'finished', text: 'the answer' });
    await expect(reader.find({ owner: newOwner(), runId: run.id })).rejects.toMatchObject({
      code: 'run_not_found',
    });
  });

  it('RunReader.outcome ends when the client that waits has left', async () => {
    const { run } = await startRun(test);
    const leave = new AbortController();
    const waiting = new RunReader(elsewhere, test.store).outcome(run, leave.signal);
    leave.abort();
    expect(await waiting).toBeUndefined();
  });
});
