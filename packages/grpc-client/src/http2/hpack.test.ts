import { describe, expect, it } from 'vitest';
import { encodeHeaders, HpackDecoder } from './hpack.js';
import { ErrorCode } from './protocol.js';

const bytes = (hex: string) => Buffer.from(hex.replaceAll(' ', ''), 'hex');
const read = (hex: string) => Object.fromEntries(new HpackDecoder().decode(bytes(hex)));

/** Sets the dynamic table to 256 bytes, as the examples of RFC 7541 do. */
const SMALL_TABLE = '3fe101';

describe('HpackDecoder with the examples of RFC 7541', () => {
  it('decodes blocks that reference earlier ones', () => {
    const reader = new HpackDecoder();
    const next = (hex: string) => Object.fromEntries(reader.decode(bytes(hex)));
    const first = {
      ':status': '302',
      'cache-control': 'private',
      date: 'Mon, 21 Oct 2013 20:13:21 GMT',
      location: 'https://www.example.com',
    };
    expect(
      next(
        `${SMALL_TABLE} 4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3`,
      ),
    ).toEqual(first);
    expect(next('4883 640e ffc1 c0bf')).toEqual({ ...first, ':status': '307' });
    expect(
      next(
        '88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07',
      ),
    ).toEqual({
      ...first,
      ':status': '200',
      date: 'Mon, 21 Oct 2013 20:13:22 GMT',
      'content-encoding': 'gzip',
      'set-cookie': 'foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1',
    });
  });

  it('decodes strings without Huffman coding', () => {
    const custom = '400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572';
    expect(read(custom)).toEqual({ 'custom-key': 'custom-header' });
    expect(read('040c 2f73 616d 706c 652f 7061 7468')).toEqual({ ':path': '/sample/path' });
    expect(read('82')).toEqual({ ':method': 'GET' });
  });
});

it('HpackDecoder evicts fields that exceed the table size', () => {
  const reader = new HpackDecoder();
  reader.decode(bytes('4003 616263 0178'));
  expect(Object.fromEntries(reader.decode(bytes('be')))).toEqual({ abc: 'x' });
  expect(() => reader.decode(bytes('20 be'))).toThrow('unknown index');
});

it('HpackDecoder joins the values of a repeated field', () => {
  expect(read('0001 61 01 78 0001 61 01 79')).toEqual({ a: 'x, y' });
});

it.each([
  ['index 0', '80', 'unknown index'],
  ['an unknown index', 'be', 'unknown index'],
  ['an endless integer', 'ff ffffffffff', 'integer in a header is too large'],
  ['a table size over the limit', '3fe1ff03', 'exceed its limit'],
  ['a name without its value', '0001 61', 'truncated'],
  ['a truncated value', '0001 61 05 78', 'truncated'],
  ['an end-of-string symbol', '0001 61 84 ffffffff', 'invalid Huffman'],
  ['padding of zeros', '0001 61 81 18', 'invalid Huffman'],
  ['padding of more than a byte', '0001 61 82 1fff', 'invalid Huffman'],
])('HpackDecoder rejects %s', (_, hex, message) => {
  expect(() => read(hex)).toThrow(message);
});

it('HpackDecoder rejects a few bytes that expand to a lot of text', () => {
  const reader = new HpackDecoder();
  reader.decode(Buffer.concat([bytes('40 01 61 7f c11e'), Buffer.alloc(4096 - 64, 'x')]));
  const refused = expect.objectContaining({ code: ErrorCode.enhanceYourCalm });
  expect(() => reader.decode(Buffer.alloc(100, 0xbe))).toThrow(refused);
});

it('HpackDecoder reads what encodeHeaders writes, for every length', () => {
  for (const length of [0, 1, 126, 127, 128, 254, 255, 256, 20_000]) {
    const value = 'é'.repeat(length);
    const fields = new HpackDecoder().decode(encodeHeaders([':path', '/x', 'x-long', value]));
    expect([...fields]).toEqual([
      [':path', '/x'],
      ['x-long', value],
    ]);
  }
});
