import { expect, test } from 'vitest';
import { readVarint, varint } from './bytes.js';

test.each([0, 1, 127, 128, 300, 16_383, 16_384, 2 ** 21, 2 ** 28 - 1])('%d comes back', (value) => {
  const bytes = Uint8Array.from(varint(value));
  expect(readVarint(bytes, 0)).toEqual({ value, next: bytes.length });
});

test.each([
  ['nothing', []],
  ['truncated', [0x80]],
  ['longer than needed', [0x80, 0x00]],
  ['longer than needed', [0xff, 0x80, 0x00]],
  ['over four bytes', [0xff, 0xff, 0xff, 0xff, 0x0f]],
  ['over eight bytes', [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]],
])('%s is refused: %j', (_, bytes) => {
  expect(readVarint(Uint8Array.from(bytes), 0)).toBeUndefined();
});
