import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { splitAt } from '../../test/support/split-at.js';
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

describe('the parser of server-sent events', () => {
  test('reads the same events wherever the text is cut', () => {
    fc.assert(
      fc.property(stream, fc.array(fc.nat(), { maxLength: 30 }), ({ text, events }, places) => {
        const parser = new SseParser();
        expect(splitAt(text, places).flatMap((piece) => parser.push(piece))).toEqual(events);
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
