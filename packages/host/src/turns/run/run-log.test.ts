import { OracleError, type ReplyWarning } from '@sibyl/protocol';
import { describe, expect, it, vi } from 'vitest';
import { createActiveRun } from '../../../test/support/test-active-run.js';
import type { Frame } from '../../store/runs/frames.js';
import type { Run } from '../../store/runs/run.js';
import { createReport, MAX_WARNINGS, readError } from './run-end.js';
import { RunLog } from './run-log.js';

const never = new AbortController().signal;

const storedRun = (fields: Partial<Run> = {}): Run => ({
  runId: 'run',
  sessionId: 'session',
  owner: 'did:key:zAlice',
  requestId: 'request',
  turn: 1,
  branch: 0,
  attempt: 1,
  status: 'running',
  hostId: 'host',
  cancelReason: undefined,
  createdAt: 0,
  startedAt: 0,
  updatedAt: 0,
  lastSeq: 0,
  messageId: 'message',
  traceparent: undefined,
  usage: { input: 0, output: 0, cached: 0 },
  report: {},
  ...fields,
});

/** Collects the numbers of the frames that a reader sees, and says when it ended. */
function startReader(log: RunLog, after = 0, signal: AbortSignal = never) {
  const seen: number[] = [];
  const read = async () => {
    for await (const frames of log.read(after, signal)) seen.push(...frames.map(({ seq }) => seq));
  };
  return { seen, ended: read() };
}

/** Lets everything run that needs no timer. */
const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

describe('RunLog', () => {
  it('numbers frames from 1 and reports each one', () => {
    const reported: Frame[] = [];
    const log = new RunLog((frame) => reported.push(frame));
    expect(log.lastSeq).toBe(0);
    const first = log.add('message', '{"content":"a"}');
    const second = log.add('done', '{}');
    expect(first).toEqual({ seq: 1, event: 'message', data: '{"content":"a"}' });
    expect(second).toEqual({ seq: 2, event: 'done', data: '{}' });
    expect(reported).toEqual([first, second]);
    expect(log.lastSeq).toBe(2);
  });

  it('continues after frames that are already stored, which it does not report again', () => {
    const reported: number[] = [];
    const log = new RunLog(({ seq }) => reported.push(seq));
    const stored = [1, 2].map((seq) => ({ seq, event: 'message', data: '{}' }));
    log.load(stored);
    expect(log.add('done', '{}').seq).toBe(3);
    expect(reported).toEqual([3]);
    expect(log.since(0).map(({ seq }) => seq)).toEqual([1, 2, 3]);
    expect(log.since(1).map(({ seq }) => seq)).toEqual([2, 3]);
    expect(log.since(3)).toEqual([]);
  });

  it('counts the memory of added and loaded frames: their data and 104 bytes each', () => {
    const log = new RunLog();
    expect(log.bytes).toBe(0);
    log.add('message', 'abc');
    expect(log.bytes).toBe(104 + 2 * 'abc'.length);
    log.load([{ seq: 2, event: 'message', data: 'long €' }]);
    expect(log.bytes).toBe(2 * 104 + 2 * 'abclong €'.length);
  });

  it('shows each reader the frames after its own position, then new ones until it closes', async () => {
    const log = new RunLog();
    log.add('message', '1');
    log.add('message', '2');
    const whole = startReader(log);
    const late = startReader(log, 1);
    await settle();
    expect([whole.seen, late.seen]).toEqual([[1, 2], [2]]);
    log.add('message', '3');
    await settle();
    expect([whole.seen, late.seen]).toEqual([
      [1, 2, 3],
      [2, 3],
    ]);
    log.add('done', '4');
    await settle();
    log.close();
    await Promise.all([whole.ended, late.ended]);
    expect([whole.seen, late.seen]).toEqual([
      [1, 2, 3, 4],
      [2, 3, 4],
    ]);
  });

  it('shows a reader that claims to have seen more than there is every frame that follows', async () => {
    const log = new RunLog();
    log.add('message', '1');
    const reader = startReader(log, 9);
    await settle();
    log.add('message', '2');
    log.close();
    await reader.ended;
    expect(reader.seen).toEqual([2]);
  });

  it('ends for a reader that leaves, and not for the others', async () => {
    const log = new RunLog();
    const leave = new AbortController();
    const leaving = startReader(log, 0, leave.signal);
    const staying = startReader(log);
    await settle();
    leave.abort();
    await leaving.ended;
    log.add('message', '1');
    log.close();
    await staying.ended;
    expect([leaving.seen, staying.seen]).toEqual([[], [1]]);
  });

  it('shows nothing to a reader that has left before it began', async () => {
    const log = new RunLog();
    log.add('message', '1');
    const reader = startReader(log, 0, AbortSignal.abort());
    await reader.ended;
    expect(reader.seen).toEqual([]);
  });

  it('removes its listener from the signal of a reader when the log closes', async () => {
    const log = new RunLog();
    const { signal } = new AbortController();
    const added = vi.spyOn(signal, 'addEventListener');
    const removed = vi.spyOn(signal, 'removeEventListener');
    log.close();
    await startReader(log, 0, signal).ended;
    expect(removed.mock.calls[0]?.slice(0, 2)).toEqual(added.mock.calls[0]?.slice(0, 2));
  });

  it('fails for readers once it is detached, after the frames that it has', async () => {
    const log = new RunLog();
    const error = new OracleError('store_unavailable');
    const waiting = startReader(log);
    await settle();
    log.add('message', '1');
    await settle();
    log.detach(error);
    await expect(waiting.ended).rejects.toBe(error);
    expect(waiting.seen).toEqual([1]);
    const late = startReader(log);
    await expect(late.ended).rejects.toBe(error);
    expect(late.seen).toEqual([1]);
  });
});

describe('ActiveRun', () => {
  const outcome = { status: 'finished', messageId: 'm', text: 'hi', warnings: [] } as const;

  it('reports the frames of its log', () => {
    const reported: number[] = [];
    const live = createActiveRun(storedRun(), { onFrame: ({ seq }) => reported.push(seq) });
    live.log.add('done', '{}');
    expect(reported).toEqual([1]);
  });

  it('keeps the first reason for which it was canceled', () => {
    const live = createActiveRun(storedRun());
    expect([live.cancelReason, live.error, live.signal.aborted]).toEqual([
      undefined,
      undefined,
      false,
    ]);
    const error = new OracleError('turn_interrupted');
    live.cancel('interrupted', error);
    expect(live.signal.aborted).toBe(true);
    live.cancel('aborted', new OracleError('host_stopping'));
    live.fail(new OracleError('turn_too_long'));
    expect([live.cancelReason, live.error]).toEqual(['interrupted', error]);
  });

  it('passes its work the reason why it is canceled', () => {
    const live = createActiveRun(storedRun());
    live.cancel('aborted');
    expect(live.signal.reason).toEqual(new Error('The turn was aborted'));
    expect(live.error).toBeUndefined();
  });

  it('that fails has an error and was not canceled', () => {
    const live = createActiveRun(storedRun());
    const error = new OracleError('turn_too_long');
    live.fail(error);
    live.cancel('aborted');
    expect([live.cancelReason, live.error]).toEqual([undefined, error]);
    expect(live.signal.reason).toBe(error);
  });

  it('that is settled has its first outcome, and ends what is still done for it without being canceled', async () => {
    const live = createActiveRun(storedRun());
    live.settle(outcome);
    live.settle({ ...outcome, status: 'failed' });
    expect(await live.outcome).toBe(outcome);
    expect(live.signal.reason).toEqual(new Error('The turn is over'));
    live.cancel('aborted', new OracleError('turn_interrupted'));
    live.fail(new OracleError('turn_too_long'));
    expect([live.cancelReason, live.error]).toEqual([undefined, undefined]);
  });
});

describe('the report of a run', () => {
  const warning = (n: number): ReplyWarning => ({ code: `w${n}`, message: `warning ${n}` });

  it('is empty without warnings and errors', () => {
    expect(createReport([])).toEqual({});
  });

  it('contains the first 50 warnings, each with nothing but its code and text', () => {
    const detailed = { ...warning(0), sessionId: 'session' };
    expect(createReport([detailed])).toEqual({ warnings: [warning(0)] });
    const many = Array.from({ length: MAX_WARNINGS + 1 }, (_, n) => warning(n));
    expect(createReport(many).warnings).toEqual(many.slice(0, 50));
  });

  it('contains no more of an error than it has', () => {
    const plain = createReport([], new OracleError('turn_too_long', { message: 'long' }));
    expect(plain).toEqual({ error: { code: 'turn_too_long', message: 'long' } });
  });

  it.each([
    ['a text', new OracleError('turn_too_long', { message: 'long' })],
    ['lines', new OracleError('validation_failed', { message: ['a: wrong', 'b: wrong'] })],
    [
      'fields and a delay',
      new OracleError('insufficient_credit', { fields: { claims: ['c'] }, retryAfterSeconds: 0 }),
    ],
  ])('returns the same error again: %s', (_, error) => {
    const read = readError(storedRun({ status: 'failed', report: createReport([], error) }));
    expect(read).toBeInstanceOf(OracleError);
    const { code, status, message, lines, fields, retryAfterSeconds } = error;
    expect(read).toMatchObject({ code, status, message, fields });
    expect([read?.lines, read?.retryAfterSeconds]).toEqual([lines, retryAfterSeconds]);
  });

  it('also has the error of a run that did not fail', () => {
    const report = createReport([], new OracleError('host_stopping'));
    expect(readError(storedRun({ status: 'interrupted', report }))?.code).toBe('host_stopping');
  });

  it.each(['of_a_later_version', 'toString'])(
    'reads the unknown code %s as an internal error',
    (code) => {
      const report = { error: { code, message: 'what happened' } };
      expect(readError(storedRun({ report }))).toMatchObject({
        code: 'internal_error',
        message: 'what happened',
        fields: {},
      });
    },
  );

  it('without an error: only a failed run gets one', () => {
    const error = { kind: 'network', message: 'The model is away' } as const;
    expect(readError(storedRun({ status: 'failed', error }))).toMatchObject({
      code: 'model_unavailable',
      message: 'The model is away',
    });
    expect(readError(storedRun({ status: 'failed' }))).toMatchObject({
      code: 'model_unavailable',
      message: 'The turn failed',
    });
    expect(readError(storedRun({ status: 'aborted', error }))).toBeUndefined();
  });
});
