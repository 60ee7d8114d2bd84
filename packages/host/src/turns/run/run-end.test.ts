import { OracleError } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import type { Frame } from '../../store/runs/frames.js';
import type { Run, RunEnd } from '../../store/runs/run.js';
import { buildHandover, endInterrupted, endUnanswered } from './run-end.js';

const timestamp = '2030-01-01T00:00:00.000Z';
const ids = { sessionId: 'session', requestId: 'request' };

const run: Run = {
  ...ids,
  runId: 'run',
  owner: 'did:key:zAlice',
  turn: 3,
  branch: 0,
  attempt: 2,
  status: 'running',
  hostId: 'dead',
  cancelReason: undefined,
  createdAt: 0,
  startedAt: 0,
  updatedAt: 0,
  lastSeq: 7,
  messageId: 'message',
  traceparent: undefined,
  usage: { input: 0, output: 0, cached: 0 },
  report: {},
};

const parse = (frames: RunEnd['frames'] = []) =>
  frames.map(({ seq, event, data }) => ({ seq, event, data: JSON.parse(data) }));

const toFrames = (...parts: readonly (readonly [event: string, data: object])[]): Frame[] =>
  parts.map(([event, data], i) => ({ seq: i + 1, event, data: JSON.stringify(data) }));

const text = (content: string) => ['message', { content, timestamp }] as const;

describe('buildHandover', () => {
  it('continues far beyond what readers can have seen, and says what they keep', () => {
    const partial = 'a part';
    expect(parse(buildHandover(run, partial))).toEqual([
      {
        seq: 1_000_007,
        event: 'run',
        data: { runId: 'run', ...ids, resumed: true, attempt: 2, partialLength: 6 },
      },
      {
        seq: 1_000_008,
        event: 'done',
        data: {
          runId: 'run',
          messageId: 'message',
          status: 'interrupted',
          interrupted: true,
          partialText: partial,
        },
      },
    ]);
  });
});

describe('endUnanswered', () => {
  it('ends a run that never began as failed, with the reason for all who ask', () => {
    const error = new OracleError('insufficient_credit', { message: 'No credit' });
    const { frames, ...ending } = endUnanswered(run, error);
    const reason = { code: 'insufficient_credit', message: 'No credit' };
    expect(ending).toEqual({
      status: 'failed',
      message: {
        content: '',
        isComplete: false,
        error: { status: 'failed', ...reason, kind: 'billing' },
      },
      error: { kind: 'billing', message: 'No credit' },
      report: { error: reason },
      trace: { cause: 'insufficient_credit' },
    });
    expect(parse(frames)).toEqual([
      {
        seq: 8,
        event: 'error',
        data: {
          error: 'No credit',
          kind: 'billing',
          code: 'insufficient_credit',
          retryable: false,
          ...ids,
          timestamp: expect.any(String),
        },
      },
      {
        seq: 9,
        event: 'done',
        data: {
          runId: 'run',
          messageId: 'message',
          status: 'failed',
          failed: true,
          partialText: '',
        },
      },
    ]);
  });

  it.each([
    ['too_many_turns', true],
    ['store_unavailable', true],
    ['internal_error', false],
    ['validation_failed', false],
  ] as const)('says whether sending again may help: after %s %s', (code, retryable) => {
    const [first] = parse(endUnanswered(run, new OracleError(code)).frames);
    expect(first?.data).toMatchObject({ code, retryable });
  });
});

describe('endInterrupted', () => {
  it('keeps the part of the answer that the log contains, and continues beyond what was shown', () => {
    const frames = toFrames(['run', { runId: 'run', ...ids }], text('half '), text('an answer'));
    const { frames: last, ...ending } = endInterrupted(run, frames);
    expect(ending).toEqual({
      status: 'interrupted',
      message: {
        content: 'half an answer',
        isComplete: false,
        error: {
          status: 'interrupted',
          code: 'host_stopping',
          message: 'The host stopped before the answer was complete.',
        },
      },
      report: {
        error: {
          code: 'host_stopping',
          message: 'The host stopped before the answer was complete. Try again.',
          retryAfterSeconds: 5,
        },
      },
      trace: { cause: 'host_lost' },
    });
    expect(parse(last)).toMatchObject([
      { seq: 1_000_007, event: 'run', data: { resumed: true, attempt: 2, partialLength: 14 } },
      {
        seq: 1_000_008,
        event: 'message_cache_invalidation',
        data: { ...ids, messageIds: ['message'], status: 'done' },
      },
      {
        seq: 1_000_009,
        event: 'done',
        data: {
          messageId: 'message',
          status: 'interrupted',
          interrupted: true,
          partialText: 'half an answer',
        },
      },
    ]);
  });

  it('ends a run that the user had aborted as aborted, which is not an error of the host', () => {
    const ending = endInterrupted({ ...run, cancelReason: 'aborted' }, toFrames(text('half')));
    expect(ending).toMatchObject({
      status: 'aborted',
      message: { content: 'half', isComplete: false, error: { status: 'aborted' } },
    });
    expect(ending.report).toEqual({});
    expect(ending.trace).toBeUndefined();
    expect(parse(ending.frames).at(-1)?.data).toMatchObject({ status: 'aborted', aborted: true });
  });

  it('keeps the warnings, and skips frames of other versions', () => {
    const warning = { code: 'w', message: 'left out' };
    const frames = toFrames(
      ['warning', { ...warning, ...ids, timestamp }],
      ['warning', { code: 7 }],
      ['message', { content: 7 }],
      ['later_version', { code: 'other', message: 'no warning', ...ids, timestamp }],
      text('half'),
    );
    const { report, message } = endInterrupted(run, frames);
    expect(report?.warnings).toEqual([warning]);
    expect(message.content).toBe('half');
  });
});
