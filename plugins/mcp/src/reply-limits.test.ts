import { describe, expect, it } from 'vitest';
import { ReplyStream } from './reply-limits.js';

const add = (text: string, pieceBytes = Number.POSITIVE_INFINITY) => {
  const stream = new ReplyStream('demo');
  const bytes = Buffer.from(text);
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += pieceBytes)
    pieces.push(stream.add(bytes.subarray(at, at + pieceBytes)));
  return Buffer.concat(pieces).toString();
};

const toEvent = (data: string) => `event: message\r\ndata: ${data}\r\n\r\n`;
const ROWS = `[${'[],'.repeat(60_000)}0]`;
const SMALL = toEvent('{"jsonrpc":"2.0","id":1,"result":"ü"}');

describe('ReplyStream.add', () => {
  it.each([1, 7, Number.POSITIVE_INFINITY])(
    'passes on what is small enough, in pieces of %d bytes',
    (pieceBytes) => {
      expect(add(SMALL + SMALL, pieceBytes)).toBe(SMALL + SMALL);
      expect(add(`${SMALL}data: {`, pieceBytes)).toBe(`${SMALL}data: {`.slice(0, SMALL.length));
    },
  );

  it.each([
    `{"jsonrpc":"2.0","id":12,"result":${ROWS}}`,
    `{"id": 12, "jsonrpc": "2.0", "result": ${ROWS}}`,
    `{"result":{"id":7,"rows":${ROWS}},"jsonrpc":"2.0","id":12}`,
    `{"result":{"rows":${ROWS}},"id":12,"jsonrpc":"2.0"}`,
    `{"jsonrpc":"2.0","id":12,"result":"${'x'.repeat(5_000_000)}"}`,
  ])('replaces one that is too large by an error (%#)', (data) => {
    for (const pieceBytes of [1000, Number.POSITIVE_INFINITY]) {
      const lines = add(SMALL + toEvent(data) + SMALL, pieceBytes).split(SMALL);
      expect(lines).toEqual(['', expect.stringMatching(/^event: message\r\ndata: .*\n\r\n$/), '']);
      const [, error = ''] = /data: (.*)/.exec(lines[1] ?? '') ?? [];
      expect(JSON.parse(error)).toEqual({
        jsonrpc: '2.0',
        id: 12,
        error: { code: -32_000, message: expect.stringMatching(/^demo answered with more than/) },
      });
    }
  });

  it.each([`{"result":{"rows":${ROWS},"id":12}}`, ROWS])(
    'throws if nothing says which request is answered (%#)',
    (data) => {
      expect(() => add(toEvent(data))).toThrow('too large');
    },
  );
});
