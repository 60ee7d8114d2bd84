import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { splitAt } from '../../test/support/split-at.js';
import { type SseEvent, SseParser } from './sse-parser.js';

const lineEnd = fc.constantFrom('\n', '\r\n', '\r');
/** Any text, including characters that separate lines elsewhere but not here. */
const line = fc
  .string({ unit: 'binary', maxLength: 40 })
  .map((text) => text.replaceAll(/[\r\n\uD800-\uDFFF]/g, '\u2028'));
const name = fc.stringMatching(/^[a-z_]{1,20}$/);

interface Written {
  readonly text: string;
  readonly event: SseEvent;
}

/** An event and one of its possible notations. */
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

/** Text between events that has no meaning. */
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

describe('SseParser', () => {
  test('returns the same events wherever the text is split', () => {
    fc.assert(
      fc.property(stream, fc.array(fc.nat(), { maxLength: 30 }), ({ text, events }, positions) => {
        const parser = new SseParser();
        expect(splitAt(text, positions).flatMap((chunk) => parser.push(chunk))).toEqual(events);
      }),
      { numRuns: 1000 },
    );
  });

  test('returns the same events character by character', () => {
    fc.assert(
      fc.property(stream, ({ text, events }) => {
        const parser = new SseParser();
        expect(text.split('').flatMap((chunk) => parser.push(chunk))).toEqual(events);
      }),
    );
  });

  test('returns an event as soon as its empty line arrives, not before', () => {
    const parser = new SseParser();
    expect(parser.push('event: message\nid: 1\ndata: {}\n')).toEqual([]);
    expect(parser.push('\r')).toEqual([{ event: 'message', id: '1', data: '{}' }]);
    expect(parser.push('\n')).toEqual([]);
  });

  test('ignores an incomplete event at the end', () => {
    expect(new SseParser().push('event: message\nid: 1\ndata: {"content":"x"}')).toEqual([]);
  });
});
