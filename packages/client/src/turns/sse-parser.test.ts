import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { readFrames } from './read-frames.js';
import { type SseEvent, SseParser } from './sse-parser.js';

const lineEnd = fc.constantFrom('\n', '\r\n', '\r');
/** Text of every script, with what splits lines in other grammars but not in this one. */
const line = fc
  .string({ unit: 'binary', maxLength: 40 })
  .map((text) => text.replaceAll(/[\r\n\uD800-\uDFFF]/g, '\u2028'));
const name = fc.stringMatching(/^[a-z_]{1,20}$/);

interface Written {
  readonly text: string;
  readonly event: SseEvent;
}

/** An event and one of the ways to write it down. */
const written: fc.Arbitrary<Written> = fc
  .record({
    event: name,
    id: fc.nat(),
    lines: fc.array(line, { minLength: 1, maxLength: 3 }),
    lineEnd,
  })
  .map(({ event, id, lines, lineEnd: end }) => ({
    text: [`event: ${event}`, `id:${id}`, ...lines.map((data) => `data: ${data}`), '', ''].join(
      end,
    ),
    event: { event, id: String(id), data: lines.join('\n') },
  }));

/** What stands between events and means nothing. */
const noise = fc.constantFrom(
  '',
  ': heartbeat\n\n',
  '\n',
  'retry: 10\r\n\r\n',
  ':\r\r',
  'unknown: x\n\n',
);

const stream = fc.array(fc.tuple(noise, written), { maxLength: 6 }).map((items) => ({
  text: items.map(([before, { text }]) => before + text).join(''),
  events: items.map(([, { event }]) => event),
}));

/** Cuts something into pieces at the given places. */
function cut<T extends { length: number; slice(from: number, to: number): T }>(
  whole: T,
  places: readonly number[],
): T[] {
  const ends = [...places.map((place) => place % (whole.length + 1)), whole.length].sort(
    (a, b) => a - b,
  );
  return ends.map((end, i) => whole.slice(ends[i - 1] ?? 0, end));
}

describe('the parser of server-sent events', () => {
  test('reads the same events wherever the text is cut', () => {
    fc.assert(
      fc.property(stream, fc.array(fc.nat(), { maxLength: 30 }), ({ text, events }, places) => {
        const parser = new SseParser();
        expect(cut(text, places).flatMap((piece) => parser.push(piece))).toEqual(events);
      }),
      { numRuns: 1000 },
    );
  });

  test('reads the same events character by character', () => {
    fc.assert(
      fc.property(stream, ({ text, events }) => {
        const parser = new SseParser();
        expect(text.split('').flatMap((piece) => parser.push(piece))).toEqual(events);
      }),
    );
  });

  test('gives an event away as soon as its empty line has come, and not before', () => {
    const parser = new SseParser();
    expect(parser.push('event: message\nid: 1\ndata: {}\n')).toEqual([]);
    expect(parser.push('\r')).toEqual([{ event: 'message', id: '1', data: '{}' }]);
    expect(parser.push('\n')).toEqual([]);
  });

  test('an event cut short by the end is no event', () => {
    expect(new SseParser().push('event: message\nid: 1\ndata: {"content":"x"}')).toEqual([]);
  });
});

describe('frames out of bytes', () => {
  const part = fc.record({ content: fc.string({ unit: 'grapheme' }), timestamp: fc.string() });

  const streamOf = (pieces: readonly Uint8Array[]) =>
    new ReadableStream<Uint8Array>({
      start: (controller) => {
        for (const piece of pieces) controller.enqueue(piece);
        controller.close();
      },
    });

  const readAll = async (pieces: readonly Uint8Array[]) => {
    const read = [];
    for await (const frame of readFrames(streamOf(pieces), () => undefined)) read.push(frame);
    return read;
  };

  test('are the same wherever the bytes are cut, also within a character', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(part),
        fc.array(fc.nat(), { maxLength: 30 }),
        async (parts, places) => {
          const text = parts.map(
            (data, i) => `event: message\nid: ${i + 1}\ndata: ${JSON.stringify(data)}\n\n`,
          );
          const bytes = new TextEncoder().encode(text.join(': heartbeat\n\n'));
          expect(await readAll(cut(bytes, places))).toEqual(
            parts.map((data, i) => ({ seq: i + 1, part: { event: 'message', data } })),
          );
        },
      ),
      { numRuns: 300 },
    );
  });

  test.each([
    ['no JSON', 'event: message\nid: 1\ndata: {"content\n\n'],
    ['no number', 'event: message\ndata: {}\n\n'],
  ])('what has %s is refused', async (_, text) => {
    const reading = readAll([new TextEncoder().encode(text)]);
    await expect(reading).rejects.toMatchObject({ code: 'invalid_reply' });
  });
});
