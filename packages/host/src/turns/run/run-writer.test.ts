import { OracleError, type ReplyPart, toApprovalId } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { createRecorder } from '../../../test/support/test-active-run.js';
import { useStore } from '../../../test/support/test-database.js';
import { startTestRun } from '../../../test/support/test-runs.js';
import type { PendingInterrupt } from '../../agent/steps.js';
import type { RunStore } from '../../store/runs/run-store.js';
import { messages, type StoredMessage } from '../../store/schema/messages.js';
import { MessageParts } from './message-parts.js';
import { RunWriter } from './run-executor.js';
import { RunLog } from './run-log.js';

const usage = { input: 3, output: 2, cached: 1, cost: 0.5 };
const finished = {
  status: 'finished',
  usage,
  failure: undefined,
  error: undefined,
  trace: {},
} as const;
const timestamp = expect.stringMatching(/^\d{4}-.*Z$/);

// The store of all tests: each starts its own run.
const test = useStore('sqlite');

interface WriterOptions {
  readonly parts?: MessageParts;
  readonly runs?: RunStore;
  readonly onUnstored?: () => void;
}

async function createWriter(options: WriterOptions = {}) {
  const { runs = test.store.runs, onUnstored, parts } = options;
  const { run, key } = await startTestRun(test.store);
  const log = new RunLog();
  const recorder = createRecorder(run, {
    ...{ log, runs, storeWaitMs: onUnstored ? 100 : 10_000 },
    ...(onUnstored && { settle: onUnstored }),
  });
  const ids = { sessionId: run.sessionId, requestId: run.requestId };
  return {
    writer: new RunWriter(run, recorder, parts),
    ...{ run, key, ids },
    frames: () => log.since(0).map(({ event, data }) => [event, JSON.parse(data)]),
    findMessage: () => test.store.messages.find({ owner: run.owner, messageId: run.messageId }),
    findRun: () => test.store.runs.find(key),
  };
}

const toolCall = (fields: object = {}) => ({
  ...{ id: 'c1', name: 'add', args: { a: 1 }, status: 'done' as const, output: '"2"' },
  ...fields,
});

describe('RunWriter.write', () => {
  it('writes texts as they come, and stores them as one answer', async () => {
    const { writer, run, frames, findMessage } = await createWriter();
    writer.write({ type: 'text', text: 'Hello ' });
    writer.write({ type: 'text', text: 'you' });
    const outcome = await writer.end(finished);
    const { runId, messageId } = run;
    expect(frames()).toEqual([
      ['message', { content: 'Hello ', timestamp }],
      ['message', { content: 'you', timestamp }],
      [
        'done',
        {
          ...{ runId, messageId, status: 'finished' },
          usage: { inputTokens: 3, outputTokens: 2, cachedTokens: 1, cost: 0.5 },
        },
      ],
    ]);
    expect(outcome).toEqual({
      ...{ status: 'finished', messageId, text: 'Hello you', warnings: [], usage },
      error: undefined,
    });
    expect(await findMessage()).toMatchObject({ content: 'Hello you', isComplete: true });
  });

  it('fills every column of the answer that has a value by then', async () => {
    const { writer, findMessage } = await createWriter();
    writer.write({ type: 'reasoning', text: 'Well' });
    writer.write({ type: 'text', text: 'Hello' });
    await writer.end(finished);
    const stored = messages.toRow((await findMessage()) as StoredMessage);
    const empty = messages.columnNames.filter((name) => stored[name] === null);
    expect(empty).toEqual(['metadata', 'error']);
  });

  it('continues the answer of earlier attempts', async () => {
    const parts = new MessageParts();
    parts.addText('Hello ');
    const { writer, findMessage } = await createWriter({ parts });
    writer.write({ type: 'text', text: 'you' });
    expect(await writer.end(finished)).toMatchObject({ text: 'Hello you' });
    expect(await findMessage()).toMatchObject({ content: 'Hello you' });
  });

  it('ends reasoning once, before what follows it', async () => {
    const { writer, ids, frames, findMessage } = await createWriter();
    writer.write({ type: 'reasoning', text: 'Let me ' });
    writer.write({ type: 'reasoning', text: 'see' });
    writer.write({ type: 'text', text: 'a' });
    writer.write({ type: 'text', text: 'b' });
    writer.write({ type: 'reasoning', text: 'hm' });
    await writer.end(finished);
    const reasoning = (text: string, isComplete: boolean) => [
      'reasoning',
      { ...ids, reasoning: text, isComplete, timestamp },
    ];
    expect(frames().slice(0, -1)).toEqual([
      reasoning('Let me ', false),
      reasoning('see', false),
      reasoning('', true),
      ['message', expect.objectContaining({ content: 'a' })],
      ['message', expect.objectContaining({ content: 'b' })],
      reasoning('hm', false),
      reasoning('', true),
    ]);
    expect((await findMessage())?.parts).toEqual([
      { type: 'reasoning', text: 'Let me see' },
      { type: 'text', text: 'ab' },
      { type: 'reasoning', text: 'hm' },
    ]);
  });

  it('shows the start and the end of a tool call', async () => {
    const { writer, ids, frames, findMessage } = await createWriter();
    writer.write({ type: 'tool-start', id: 'c1', name: 'add', args: { a: 1 } });
    writer.write({ type: 'tool-end', call: toolCall() });
    const failed = toolCall({ id: 'c2', status: 'error', output: '"no"' });
    writer.write({ type: 'tool-end', call: failed });
    await writer.end(finished);
    const call = { ...ids, eventId: 'c1', toolName: 'add', args: { a: 1 } };
    expect(frames().slice(0, -1)).toEqual([
      ['tool_call', { ...call, status: 'isRunning' }],
      ['tool_call', { ...call, status: 'done', output: '"2"' }],
      ['tool_call', { ...call, eventId: 'c2', status: 'error', output: '"no"', error: '"no"' }],
    ]);
    expect((await findMessage())?.parts).toEqual([
      { type: 'tool-call', call: toolCall() },
      { type: 'tool-call', call: failed },
    ]);
  });

  it('shows only the end of an action, which is in the answer from its start', async () => {
    const { writer, ids, frames, findMessage } = await createWriter();
    const start = {
      type: 'tool-start',
      name: 'add',
      args: { a: 1 },
      event: 'action_call',
    } as const;
    writer.write({ ...start, id: 'c1' });
    writer.write({ ...start, id: 'c2' });
    expect(frames()).toEqual([]);
    writer.write({ type: 'tool-end', call: toolCall(), event: 'action_call' });
    await writer.end(finished);
    const call = { ...ids, toolCallId: 'c1', toolName: 'add', args: { a: 1 } };
    expect(frames()[0]).toEqual(['action_call', { ...call, status: 'done', output: '"2"' }]);
    expect((await findMessage())?.parts).toMatchObject([
      { call: { id: 'c1', status: 'done' } },
      { call: { id: 'c2', status: 'error' } },
    ]);
  });

  it('streams all warnings, and returns the first 50', async () => {
    const { writer, ids, frames, findRun } = await createWriter();
    for (let i = 0; i < 51; i++) writer.write({ type: 'warning', code: `w${i}`, message: 'left' });
    const { warnings } = await writer.end(finished);
    expect(frames()).toHaveLength(51 + 1);
    expect(frames()[50]).toEqual(['warning', { code: 'w50', message: 'left', ...ids, timestamp }]);
    expect(warnings.map(({ code }) => code)).toEqual(Array.from({ length: 50 }, (_, i) => `w${i}`));
    expect((await findRun())?.report.warnings).toEqual(warnings);
  });
});

describe('RunWriter.emit', () => {
  const citation = { title: 'A book', url: 'https://example.org' };

  it('makes components and citations part of the answer, as they were when they were emitted', async () => {
    const { writer, ids, findMessage } = await createWriter();
    const args = { x: 1 };
    const component = {
      ...ids,
      eventId: 'e',
      componentName: 'chart',
      args,
      status: 'done',
    } as const;
    const emitted = writer.emit({ event: 'render_component', data: component });
    expect(emitted).toMatchObject({ event: 'render_component', position: { turn: 1, seq: 1 } });
    const cited = { ...ids, citation: { ...citation } };
    // Sockets do not receive citations.
    expect(writer.emit({ event: 'citation', data: cited })).toBeUndefined();
    args.x = 2;
    cited.citation.title = 'Another book';
    await writer.end(finished);
    expect((await findMessage())?.parts).toEqual([
      { type: 'component', component: { id: 'e', name: 'chart', args: { x: 1 } } },
      { type: 'citation', citation },
    ]);
  });

  it('shows other events without storing them in the answer', async () => {
    const { writer, ids, frames, findMessage } = await createWriter();
    const part: ReplyPart = { event: 'router_update', data: { ...ids, step: 'call' } };
    expect(writer.emit(part)).toMatchObject({ event: 'router_update' });
    writer.emit({ event: 'message', data: { content: 'no', timestamp: '2030-01-01T00:00:00Z' } });
    const call = { eventId: 'c', toolName: 'add', args: {}, status: 'done', output: '1' } as const;
    writer.emit({ event: 'tool_call', data: { ...ids, ...call } });
    await writer.end(finished);
    expect(frames()[0]).toEqual(['router_update', { ...ids, step: 'call' }]);
    const message = await findMessage();
    expect([message?.content, message?.parts ?? []]).toEqual(['', []]);
  });
});

describe('RunWriter.end', () => {
  it('says why a turn failed: in a frame, in the message, in the run and to the caller', async () => {
    const { writer, run, ids, frames, findMessage, findRun } = await createWriter();
    writer.write({ type: 'text', text: 'half' });
    const error = new OracleError('model_unavailable', { message: 'away' });
    const failure = {
      message: 'The model is away',
      kind: 'network',
      retryable: true,
      error,
      cause: 'c',
    } as const;
    const outcome = await writer.end({ ...finished, status: 'failed', failure, error });
    expect(frames().slice(1)).toMatchObject([
      [
        'error',
        {
          ...{ error: 'The model is away', kind: 'network', code: 'model_unavailable' },
          ...{ retryable: true, ...ids, timestamp },
        },
      ],
      ['done', { status: 'failed', failed: true, partialText: 'half' }],
    ]);
    const reason = {
      status: 'failed',
      code: 'model_unavailable',
      message: 'away',
      kind: 'network',
    };
    expect(await findMessage()).toMatchObject({ isComplete: false, error: reason });
    expect(await findRun()).toMatchObject({
      status: 'failed',
      error: { kind: 'network', message: 'The model is away' },
      report: { error: { code: 'model_unavailable', message: 'away' }, cost: 0.5 },
    });
    const { messageId } = run;
    expect(outcome).toMatchObject({ status: 'failed', messageId, text: 'half', error });
  });

  it.each([
    ['aborted', 'turn_aborted'],
    ['interrupted', 'turn_interrupted'],
    ['failed', 'internal_error'],
  ] as const)('stores a reason for a turn that was %s without an error', async (status, code) => {
    const { writer, findMessage, findRun } = await createWriter();
    await writer.end({ ...finished, status });
    const message = await findMessage();
    expect(message).toMatchObject({ isComplete: false, error: { status, code } });
    expect(message?.error).not.toHaveProperty('kind');
    expect((await findRun())?.error).toBeUndefined();
  });

  it('reports to the caller that the turn failed if its end could not be stored in time', async () => {
    const unstored = Promise.withResolvers<void>();
    const runs = Object.create(test.store.runs) as RunStore;
    runs.finish = async (request) => {
      if (request.end.status !== 'failed') {
        await unstored.promise;
        throw new Error('Connection terminated');
      }
      return test.store.runs.finish(request);
    };
    const { writer } = await createWriter({ runs, onUnstored: unstored.resolve });
    expect(await writer.end(finished)).toMatchObject({
      status: 'failed',
      error: { code: 'store_unavailable', retryAfterSeconds: 5 },
    });
  });
});

describe('RunWriter.pause', () => {
  const DAY_MS = 24 * 60 * 60 * 1000;
  const question = (fields: Partial<PendingInterrupt> = {}): PendingInterrupt => ({
    ...{ kind: 'input_required', schema: { type: 'object' }, data: { text: 'Which?' } },
    ...{ callId: 'c1', path: '', key: 'c1' },
    ...fields,
  });
  const approval = {
    ...{ tool: 'pay', plugin: 'bank', args: { to: 'bob' }, argsHash: 'hash' },
    ...{ inputSchema: { type: 'object' }, requiredBy: 'rules' as const },
  };
  const databaseTime = Date.UTC(2030, 0, 1);
  const pauseWith = (interrupts: readonly PendingInterrupt[], limit = 10) => ({
    ...{ interrupts, request: { message: 'hi' }, limit, usage, now: databaseTime },
  });

  it('stores the questions with their data and expiry: 7 days, unless the tool says otherwise', async () => {
    const { writer, run, key, frames, findRun, findMessage } = await createWriter();
    writer.write({ type: 'text', text: 'Well' });
    const before = Date.now();
    const questions = [question(), question({ callId: 'c2', key: 'c2', expiresInSeconds: 60 })];
    const outcome = await writer.pause(pauseWith(questions));
    const unordered = await test.store.runs.interrupts(run);
    const stored = unordered.toSorted((a, b) => a.callId.localeCompare(b.callId));
    expect(stored).toMatchObject([
      {
        kind: 'input_required',
        callId: 'c1',
        path: 'c1',
        data: { text: 'Which?' },
        status: 'open',
      },
      { kind: 'input_required', callId: 'c2', path: 'c2', schema: { type: 'object' } },
    ]);
    const waits = stored.map(({ expiresAt }) => expiresAt - before);
    expect(waits[0]).toBeGreaterThanOrEqual(7 * DAY_MS);
    expect(waits[0]).toBeLessThan(7 * DAY_MS + 60_000);
    expect(waits[1]).toBeGreaterThanOrEqual(60_000);
    expect(waits[1]).toBeLessThan(120_000);
    const pending = stored.map(({ id, kind }) => ({ id, kind }));
    const { messageId } = run;
    const status = 'interrupted';
    expect(outcome).toEqual({ status, messageId, text: 'Well', warnings: [], usage, pending });
    expect(frames().slice(1)).toMatchObject([
      ['done', { status, interrupted: true, partialText: 'Well', pending }],
    ]);
    expect(await findRun()).toMatchObject({ status: 'paused', report: { pending, cost: 0.5 } });
    expect(await test.store.runs.request(key)).toEqual({ message: 'hi' });
    expect(await findMessage()).toMatchObject({ content: 'Well', isComplete: false });
  });

  it('asks for an approval with the exact call and its expiry by the clock of the database, under an id that names it', async () => {
    const { writer, run, ids, frames } = await createWriter();
    const asked = question({ kind: 'confirmation', approval, data: 'hidden' });
    const outcome = await writer.pause(pauseWith([asked]));
    const { tool, plugin, args, argsHash, inputSchema, requiredBy } = approval;
    const facts = {
      sessionId: run.sessionId,
      runId: run.runId,
      call: 'c1',
      tool,
      plugin,
      argsHash,
    };
    const id = await toApprovalId(facts);
    expect(outcome?.pending).toEqual([{ id, kind: 'confirmation' }]);
    const [[event, data] = []] = frames();
    expect([event, data]).toEqual([
      'approval_request',
      {
        ...{ ...ids, runId: run.runId, approvalId: id, toolCallId: 'c1', toolName: tool, plugin },
        ...{ args, argsHash, requiredBy, expiresAt: timestamp, timestamp },
      },
    ]);
    expect(Date.parse(data.expiresAt)).toBe(databaseTime + 7 * DAY_MS);
    expect(frames().at(-1)?.[0]).toBe('done');
    const [stored] = await test.store.runs.interrupts(run);
    expect(stored).toMatchObject({ id, data: { tool, args } });
    const { owner } = run;
    expect(await test.store.approvals.find({ owner, id })).toMatchObject({
      id,
      args,
      inputSchema,
    });
  });

  it('stores that the calls that wait did not run, for later turns', async () => {
    const { writer, findMessage } = await createWriter();
    for (const id of ['c1', 'c2', 'c3'])
      writer.write({ type: 'tool-start', id, name: 'add', args: {} });
    const nested = question({ callId: 'inner', path: 'c2/deep', key: 'c2/deep/inner' });
    await writer.pause(pauseWith([question(), nested]));
    const outputs = (await findMessage())?.parts?.map((part) =>
      part.type === 'tool-call' ? part.call.output : '',
    );
    const didNotRun = expect.stringContaining('The call did not run');
    expect(outputs).toEqual([didNotRun, didNotRun, expect.stringContaining('unknown')]);
  });

  it('ends reasoning, keeps warnings, and refuses more paused runs than the user may have', async () => {
    const refused = await createWriter();
    expect(await refused.writer.pause(pauseWith([question()], 0))).toBeUndefined();
    expect(await refused.findRun()).toMatchObject({ status: 'running' });
    expect(refused.frames()).toEqual([]);
    const { writer, frames } = await createWriter();
    writer.warn('w', 'left out');
    writer.write({ type: 'reasoning', text: 'hm' });
    const outcome = await writer.pause(pauseWith([question()]));
    expect(outcome?.warnings).toEqual([{ code: 'w', message: 'left out' }]);
    expect(frames().slice(1)).toMatchObject([
      ['reasoning', { isComplete: false }],
      ['reasoning', { reasoning: '', isComplete: true }],
      ['done', { status: 'interrupted' }],
    ]);
  });
});
