import { randomUUID } from 'node:crypto';
import { pino } from 'pino';
import { expect, it } from 'vitest';
import { useStore } from '../../test/support/test-database.js';
import { startTestRun } from '../../test/support/test-runs.js';
import { MemoryEventBus } from '../bus/event-bus.js';
import { FlushLoop } from './flush-loop.js';
import { RunLog } from './run-log.js';
import { buildDoneFrame, RunRecorder } from './run-recorder.js';
import { createTurnEmit } from './turn-context.js';

const test = useStore('sqlite');

/** A running run, the events its session's sockets receive, and the `emit` of a plugin. */
async function begin(checksEvents: boolean) {
  const { runs } = test.store;
  const { run } = await startTestRun(test.store);
  const [events, log] = [new MemoryEventBus(), new RunLog()];
  const heard: unknown[] = [];
  events.subscribe(run, ({ payload }) => heard.push(payload));
  const lines: { msg: string }[] = [];
  const logger = pino({}, { write: (line) => void lines.push(JSON.parse(line)) });
  const shutdown = new AbortController().signal;
  const recorder = new RunRecorder({
    run,
    log,
    runs,
    events,
    logger,
    shutdown,
    storeWaitMs: 10_000,
    onUnstored: () => {},
    onFull: () => undefined,
    isStoreLost: () => false,
    isResumable: false,
    onLost: () => {},
    onCanceled: () => {},
    onPromoted: () => {},
    takesNext: () => true,
    flushes: new FlushLoop(runs, logger),
  });
  const emit = createTurnEmit({ run, recorder, logger, checksEvents });
  const place = { sessionId: run.sessionId, requestId: run.requestId };
  const written = () => log.since(0).map(({ data }) => JSON.parse(data));
  return { run, recorder, emit, heard, written, lines, place };
}

const cyclic: Record<string, unknown> = {};
cyclic.self = cyclic;

it('createTurnEmit adds the session, and a plugin cannot emit into another one', async () => {
  const { emit, heard, written, place } = await begin(true);
  const forged = { step: 'a', sessionId: 'another', requestId: 'another' };
  emit.router(forged);
  expect(heard).toEqual([{ step: 'a', ...place }]);
  expect(written()).toEqual(heard);
});

it('drops what does not fit while plugins are written, and says what was wrong', async () => {
  const { emit, heard, lines } = await begin(true);
  emit.router({ step: 7 as unknown as string });
  expect(heard).toEqual([]);
  expect(lines).toMatchObject([
    { event: 'router_update', faults: [expect.stringMatching(/^step/)] },
  ]);
});

it('lets pass what does not fit while they are served, and still never throws', async () => {
  const { emit, heard, lines } = await begin(false);
  emit.router({ step: 7 as unknown as string });
  expect(heard).toHaveLength(1);
  emit.toolCall({ eventId: 'e', toolName: 't', args: cyclic, status: 'done' });
  expect(heard).toHaveLength(1);
  expect(lines).toMatchObject([{ event: 'tool_call' }]);
});

it('says nothing more once the turn is ending', async () => {
  const { run, recorder, emit, heard, written } = await begin(true);
  const messageId = randomUUID();
  const message = { id: messageId, content: 'Hello', isComplete: true };
  const done = buildDoneFrame({ runId: run.id, messageId, status: 'finished', text: 'Hello' });
  const ending = recorder.end({ status: 'finished', message }, done);
  emit.router({ step: 'too late' });
  await ending;
  emit.router({ step: 'far too late' });
  expect(heard).toEqual([]);
  expect(written()).toEqual([done.data]);
});
