import { describe, expect, it } from 'vitest';
import { headerBlockOf } from './header-block.js';
import { HeaderReader } from './header-reader.js';
import { ErrorCode } from './protocol.js';

const bytes = (hex: string) => Buffer.from(hex.replaceAll(' ', ''), 'hex');
const read = (hex: string) => Object.fromEntries(new HeaderReader().read(bytes(hex)));

/** Leaves 256 bytes to what is remembered, as the examples of RFC 7541 do. */
const SMALL_TABLE = '3fe101';

describe('the examples of RFC 7541', () => {
  it('are read, each by what came before', () => {
    const reader = new HeaderReader();
    const next = (hex: string) => Object.fromEntries(reader.read(bytes(hex)));
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

  it('are read without an encoding of their texts too', () => {
    const custom = '400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572';
    expect(read(custom)).toEqual({ 'custom-key': 'custom-header' });
    expect(read('040c 2f73 616d 706c 652f 7061 7468')).toEqual({ ':path': '/sample/path' });
    expect(read('82')).toEqual({ ':method': 'GET' });
  });
});

it('forgets what there is no room for', () => {
  const reader = new HeaderReader();
  reader.read(bytes('4003 616263 0178'));
  expect(Object.fromEntries(reader.read(bytes('be')))).toEqual({ abc: 'x' });
  expect(() => reader.read(bytes('20 be'))).toThrow('refers to nothing');
});

it('joins values of one name', () => {
  expect(read('0001 61 01 78 0001 61 01 79')).toEqual({ a: 'x, y' });
});

it.each([
  ['number 0', '80', 'refers to nothing'],
  ['a number nobody gave', 'be', 'refers to nothing'],
  ['a number that never ends', 'ff ffffffffff', 'number in a header is too large'],
  ['a table that is too large', '3fe1ff03', 'grow too large'],
  ['a name without its value', '0001 61', 'cut short'],
  ['a text without its end', '0001 61 05 78', 'cut short'],
  ['the mark of the end within a text', '0001 61 84 ffffffff', 'not encoded as it says'],
  ['filling of zeros', '0001 61 81 18', 'not encoded as it says'],
  ['filling of more than a byte', '0001 61 82 1fff', 'not encoded as it says'],
])('refuses %s', (_, hex, message) => {
  expect(() => read(hex)).toThrow(message);
});

it('refuses a few bytes that mean much text', () => {
  const reader = new HeaderReader();
  reader.read(Buffer.concat([bytes('40 01 61 7f c11e'), Buffer.alloc(4096 - 64, 'x')]));
  const refused = expect.objectContaining({ code: ErrorCode.enhanceYourCalm });
  expect(() => reader.read(Buffer.alloc(100, 0xbe))).toThrow(refused);
});

it('reads what is written, whatever its length', () => {
  for (const length of [0, 1, 126, 127, 128, 254, 255, 256, 20_000]) {
    const value = 'é'.repeat(length);
    const fields = new HeaderReader().read(headerBlockOf([':path', '/x', 'x-long', value]));
    expect([...fields]).toEqual([
      [':path', '/x'],
      ['x-long', value],
    ]);
  }
});
