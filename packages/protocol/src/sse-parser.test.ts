import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type SseEvent, SseParser } from './sse-parser.js';

const lineEnd = fc.constantFrom('\n', '\r\n', '\r');
/** Text of every script, with characters that end lines in other grammars but not in this one. */
const line = fc
  .string({ unit: 'binary', maxLength: 40 })
  .map((text) => text.replaceAll(/[\r\n\uD800-\uDFFF]/g, '\u2028'));
const name = fc.stringMatching(/^[a-z_]{1,20}$/);

interface WrittenEvent {
  readonly text: string;
  readonly event: SseEvent;
}

/** An event and one of the ways to write it. */
const writtenEvent: fc.Arbitrary<WrittenEvent> = fc
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

/** Lines between events that mean nothing. */
const noise = fc.constantFrom(
  '',
  ': heartbeat\n\n',
  '\n',
  'retry: 10\r\n\r\n',
  ':\r\r',
  'unknown: x\n\n',
);

const stream = fc.array(fc.tuple(noise, writtenEvent), { maxLength: 6 }).map((items) => ({
  text: items.map(([before, { text }]) => before + text).join(''),
  events: items.map(([, { event }]) => event),
}));

function split(text: string, places: readonly number[]): string[] {
  const ends = [...places.map((place) => place % (text.length + 1)), text.length].sort(
    (a, b) => a - b,
  );
  return ends.map((end, i) => text.slice(ends[i - 1] ?? 0, end));
}

const parse = (chunks: readonly string[]): SseEvent[] => {
  const parser = new SseParser();
  return [...chunks.flatMap((chunk) => parser.push(chunk)), ...parser.flush()];
};

describe('SseParser', () => {
  it('parses the same events wherever the text is split', () => {
    fc.assert(
      fc.property(stream, fc.array(fc.nat(), { maxLength: 30 }), ({ text, events }, places) => {
        expect(parse(split(text, places))).toEqual(events);
      }),
      { numRuns: 1000 },
    );
  });

  it('parses the same events character by character', () => {
    fc.assert(
      fc.property(stream, ({ text, events }) => {
        expect(parse(text.split(''))).toEqual(events);
      }),
    );
  });

  it('returns an event with its empty line and not before', () => {
    const parser = new SseParser();
    expect(parser.push('event: message\nid: 1\ndata: {}\n')).toEqual([]);
    expect(parser.push('\r')).toEqual([{ event: 'message', id: '1', data: '{}' }]);
    expect(parser.push('\n')).toEqual([]);
  });

  it('parses a byte order mark, comments, CRLF, several data lines and a missing end', () => {
    const text = [
      '\uFEFF: keep-alive\n\n',
      'event: message\r\nid: 7\r\ndata: {"a":1}\r\n\r\n',
      'data:{"b":2}\n\n',
      ': OPENROUTER PROCESSING\n\n',
      'data: first\ndata: second\n\n',
      'data\n\n',
      'data: [DONE]',
    ].join('');
    const data = ['{"a":1}', '{"b":2}', 'first\nsecond', '', '[DONE]'];
    for (let size = 1; size <= text.length; size++) {
      const chunks = text.match(new RegExp(`[^]{1,${size}}`, 'g')) ?? [];
      expect(parse(chunks).map((event) => event.data)).toEqual(data);
    }
  });

  it('flush() drops nothing but returns an unfinished event only once', () => {
    const parser = new SseParser();
    expect(parser.push('data: x')).toEqual([]);
    expect(parser.flush()).toEqual([{ event: '', id: '', data: 'x' }]);
    expect(parser.flush()).toEqual([]);
  });

  it('throws at a line without an end', () => {
    const parser = new SseParser();
    const chunk = 'x'.repeat(1024 * 1024);
    expect(() => {
      for (let i = 0; i < 10; i++) parser.push(chunk);
    }).toThrow(/exceeds 8388608 characters/);
  });

  it('throws at an event of ever more lines', () => {
    const parser = new SseParser({ maxEventLength: 1000 });
    expect(() => {
      for (let i = 0; i < 100; i++) parser.push(`data: ${'x'.repeat(20)}\n`);
    }).toThrow(/exceeds 1000 characters/);
  });

  it('needs linear time for a long line in small chunks', () => {
    const parser = new SseParser();
    const chunk = 'x'.repeat(64);
    const before = performance.now();
    parser.push('data: ');
    for (let i = 0; i < 100_000; i++) parser.push(chunk);
    expect(parser.push('\n\n')).toHaveLength(1);
    expect(performance.now() - before).toBeLessThan(5_000);
  });
});
