import type { RandomSource } from './random-source.js';

const PIECES = [
  'a',
  'ixo1',
  ' ',
  '<',
  '>',
  '&',
  '"',
  '\\',
  '\n',
  '\u0001',
  '\u007f',
  'é',
  '€',
  '😀',
  '\u2028',
  '\u2029',
  '\ufffd',
];
const BROKEN = [
  [0xff],
  [0xc3],
  [0xe2, 0x80],
  [0xed, 0xa0, 0x80],
  [0xf4, 0x90, 0x80, 0x80],
  [0xc0, 0xaf],
  [0x80],
];
const JSON_PIECES = [
  '{"a": 1}',
  ' [ 1 , "x y" , null ] ',
  '"<\\"&\\\\"',
  '{"nested":{"list":[1.50,true]}}',
  '0',
  '"\u2028"',
];

/** Text, sometimes with bytes that are not valid UTF-8. */
export function randomText(random: RandomSource): number[] {
  return Array.from({ length: random.below(12) }, () =>
    random.happens(25) ? random.pick(BROKEN) : [...Buffer.from(random.pick(PIECES))],
  ).flat();
}

/** The digits of a whole number, or the empty string. */
export function randomDigits(random: RandomSource, length: number): Buffer {
  if (length === 0) return Buffer.alloc(0);
  const digits = Array.from({ length }, () => random.below(10)).join('');
  const sign = random.happens(4) ? '-' : '';
  return Buffer.from(`${sign}${BigInt(digits)}`);
}

export function randomJson(random: RandomSource): Buffer {
  return Buffer.from(random.pick(JSON_PIECES));
}
