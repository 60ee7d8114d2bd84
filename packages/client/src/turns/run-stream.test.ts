import type { ReplyPart } from '@sibyl/protocol';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { splitAt } from '../../test/support/split-at.js';
import { OracleClientError } from '../errors.js';
import {
  followRun,
  type OpenStream,
  type Position,
  readFrames,
  watchSessions,
} from './run-stream.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const frame = (seq: number, event: string, data: object = {}) =>
  `event: ${event}\nid: ${seq}\ndata: ${JSON.stringify(data)}\n\n`;
const run = frame(1, 'run', { runId: 'r', sessionId: 's', requestId: 'q' });
const done = (seq: number) => frame(seq, 'done', { runId: 'r', status: 'finished' });

/** A server that replies each attempt with the next of these; `silent` ones never end. */
function fakeHost(...replies: (string | { silent: string } | Error)[]) {
  const positions: Position[] = [];
  const open: OpenStream = async (position, signal) => {
    positions.push(position);
    const reply = replies[positions.length - 1] ?? new Error('no more replies');
    if (reply instanceof Error) throw reply;
    const [text, isSilent] = typeof reply === 'string' ? [reply, false] : [reply.silent, true];
    const body = new ReadableStream({
      start: (controller) => {
        controller.enqueue(new TextEncoder().encode(text));
        if (!isSilent) return controller.close();
        signal.addEventListener('abort', () => controller.error(signal.reason));
      },
    });
    return new Response(body);
  };
  return { open, positions };
}

async function collect(stream: AsyncIterable<ReplyPart>): Promise<string[]> {
  const events: string[] = [];
  for await (const { event } of stream) events.push(event);
  return events;
}

const START = { runId: undefined, after: 0 };
const JOINED = { runId: 'r', after: 7 };
const rejection = (status: number, retryAfterSeconds?: number) =>
  new OracleClientError('internal_error', 'rejected', {
    status,
    ...(retryAfterSeconds && { retryAfterSeconds }),
  });

it('followRun reconnects a stream that is silent for three heartbeats', async () => {
  const { open, positions } = fakeHost({ silent: run }, done(2));
  const events = collect(followRun(open, START));
  await vi.advanceTimersByTimeAsync(44_000);
  expect(positions).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(await events).toEqual(['run', 'done']);
  expect(positions).toEqual([START, { runId: 'r', after: 1 }]);
});

it('followRun ignores heartbeats between frames', async () => {
  const { open } = fakeHost(`: heartbeat\n\n${run}: heartbeat\n\n${done(2)}`);
  expect(await collect(followRun(open, START))).toEqual(['run', 'done']);
});

it('followRun waits for Retry-After once the turn has started', async () => {
  const { open, positions } = fakeHost(run, rejection(503, 20), rejection(429), done(2));
  const events = collect(followRun(open, START));
  await vi.advanceTimersByTimeAsync(15_000);
  expect(positions).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(await events).toEqual(['run', 'done']);
});

it.each([
  [START, rejection(503), 1],
  [START, rejection(429), 1],
  [JOINED, rejection(404), 1],
  [JOINED, rejection(401), 1],
])('followRun does not retry a rejected request: %o %o', async (start, error, attempts) => {
  const { open, positions } = fakeHost(error, done(8));
  await expect(collect(followRun(open, start))).rejects.toBe(error);
  expect(positions).toHaveLength(attempts);
});

it('followRun tries three times to start, and reconnects for two minutes', async () => {
  const offline = new OracleClientError('network_error', 'offline');
  const first = fakeHost(offline, offline, offline, done(1));
  const notStarted = expect(collect(followRun(first.open, START))).rejects.toBe(offline);
  await vi.advanceTimersByTimeAsync(10_000);
  await notStarted;
  expect(first.positions).toHaveLength(3);

  const joined = fakeHost(...Array.from({ length: 1000 }, () => offline));
  const lost = expect(collect(followRun(joined.open, JOINED))).rejects.toMatchObject({
    code: 'connection_lost',
    cause: offline,
  });
  await vi.advanceTimersByTimeAsync(130_000);
  await lost;
  expect(joined.positions.length).toBeGreaterThan(10);
});

it('followRun does not reconnect after a frame that is too large', async () => {
  const { open, positions } = fakeHost(`${run}data: ${'x'.repeat(9 * 1024 * 1024)}`, done(2));
  await expect(collect(followRun(open, START))).rejects.toMatchObject({ code: 'invalid_reply' });
  expect(positions).toHaveLength(1);
});

it('watchSessions ends when it is aborted while it waits to reconnect', async () => {
  const stop = new AbortController();
  const request = () => Promise.reject(rejection(503));
  const next = watchSessions({ request }, { signal: stop.signal }).next();
  await vi.advanceTimersByTimeAsync(1);
  stop.abort();
  expect(await next).toEqual({ done: true, value: undefined });
});

describe('readFrames', () => {
  const part = fc.record({ content: fc.string({ unit: 'grapheme' }), timestamp: fc.string() });

  const toStream = (chunks: readonly Uint8Array[]) =>
    new ReadableStream<Uint8Array>({
      start: (controller) => {
        for (const chunk of chunks) controller.enqueue(chunk);
        controller.close();
      },
    });

  const readAll = async (chunks: readonly Uint8Array[]) => {
    const read = [];
    for await (const frame of readFrames(toStream(chunks), () => undefined)) read.push(frame);
    return read;
  };

  it('returns the same frames wherever the bytes are split, even within a character', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(part),
        fc.array(fc.nat(), { maxLength: 30 }),
        async (parts, positions) => {
          const text = parts.map(
            (data, i) => `event: message\nid: ${i + 1}\ndata: ${JSON.stringify(data)}\n\n`,
          );
          const bytes = new TextEncoder().encode(text.join(': heartbeat\n\n'));
          expect(await readAll(splitAt(bytes, positions))).toEqual(
            parts.map((data, i) => ({ seq: i + 1, part: { event: 'message', data } })),
          );
        },
      ),
      { numRuns: 300 },
    );
  });

  it('rejects a frame that exceeds the limit of SseParser', async () => {
    const chunk = new TextEncoder().encode('x'.repeat(1024 * 1024));
    const reading = readAll(Array.from({ length: 10 }, () => chunk));
    await expect(reading).rejects.toMatchObject({
      code: 'invalid_reply',
      message: 'The oracle sent a frame that is too large',
    });
  });

  it.each([
    ['without JSON', 'event: message\nid: 1\ndata: {"content\n\n'],
    ['without a number', 'event: message\ndata: {}\n\n'],
  ])('rejects a frame %s', async (_, text) => {
    const reading = readAll([new TextEncoder().encode(text)]);
    await expect(reading).rejects.toMatchObject({ code: 'invalid_reply' });
  });
});
