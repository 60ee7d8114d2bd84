import { expect, it } from 'vitest';
import { SseReader } from './reply-reader.js';

const stream = [
  '\uFEFF: keep-alive\n\n',
  'event: message\r\nid: 7\r\ndata: {"a":1}\r\n\r\n',
  'data:{"b":2}\n\n',
  ': OPENROUTER PROCESSING\n\n',
  'data: first\ndata: second\n\n',
  'retry: 10\n\n',
  'data: [DONE]',
].join('');

function readIn(pieces: readonly string[]): string[] {
  const reader = new SseReader();
  return [...pieces.flatMap((piece) => reader.push(piece)), ...reader.end()];
}

it('reads comments, CRLF, BOM, several lines and a missing end', () => {
  expect(readIn([stream])).toEqual(['{"a":1}', '{"b":2}', 'first\nsecond', '[DONE]']);
});

it('reads the same however the stream is cut', () => {
  const whole = readIn([stream]);
  for (let size = 1; size < stream.length; size++) {
    const pieces = stream.match(new RegExp(`[^]{1,${size}}`, 'g')) ?? [];
    expect(readIn(pieces)).toEqual(whole);
  }
});

it('does not collect a line without end', () => {
  const reader = new SseReader();
  const piece = 'x'.repeat(1024 * 1024);
  expect(() => {
    for (let i = 0; i < 10; i++) reader.push(piece);
  }).toThrow(/never ends/);
});
