import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { engines, useStore } from '../../test/support/test-database.js';
import { startTestRun } from '../../test/support/test-runs.js';
import { MemoryEventBus } from '../bus/event-bus.js';
import type { Run } from '../store/runs/run.js';
import type { Store } from '../store/store.js';
import { endInterrupted } from './closing-runs.js';
import { FlushLoop } from './flush-loop.js';
import { RunLog } from './run-log.js';
import { buildDoneFrame, buildRunFrame, RunRecorder } from './run-recorder.js';

const logger = pino({ level: 'silent' });

function createRecorder({ runs }: Pick<Store, 'runs'>, run: Run): RunRecorder {
  const ignore = () => {};
  return new RunRecorder({
    run,
    log: new RunLog(),
    runs,
    flushes: new FlushLoop(runs, logger),
    events: new MemoryEventBus(),
    logger,
    storeWaitMs: 10_000,
    isResumable: false,
    isStoreLost: () => false,
    shutdown: new AbortController().signal,
    takesNext: () => true,
    onLost: ignore,
    onCanceled: ignore,
    onUnstored: ignore,
    onFull: ignore,
    onPromoted: ignore,
  });
}

/** Ends the run as a host does that has stopped the turn after some text. */
function interrupt(recorder: RunRecorder, { id: runId, messageId }: Run) {
  const status = 'interrupted';
  const message = { content: 'half', isComplete: false };
  return recorder.end(
    { status, message },
    buildDoneFrame({ runId, messageId, status, text: 'half' }),
  );
}

describe.each(engines)('RunRecorder.end on %s', (engine) => {
  const test = useStore(engine);

  it('does not take the end that another host has stored for its own', async () => {
    const { run } = await startTestRun(test.store);
    const recorder = createRecorder(test.store, run);
    recorder.write(buildRunFrame(run));
    await test.store.runs.close(run, endInterrupted);
    await expect(interrupt(recorder, run)).rejects.toThrow('ended elsewhere');
  });

  it('finds its own end if the reply of the database was lost', async () => {
    const { run } = await startTestRun(test.store);
    const runs = Object.create(test.store.runs) as Store['runs'];
    let attempts = 0;
    runs.finish = async (request) => {
      attempts += 1;
      const ended = await test.store.runs.finish(request);
      if (attempts === 1) throw new Error('Connection terminated unexpectedly');
      return ended;
    };
    const recorder = createRecorder({ runs }, run);
    recorder.write(buildRunFrame(run));
    expect(await interrupt(recorder, run)).toMatchObject({ status: 'interrupted', lastSeq: 2 });
    expect(attempts).toBe(2);
  });
});
