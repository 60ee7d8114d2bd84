import { expect, it } from 'vitest';
import { isAfter, positionText, readPosition } from './position.js';

it('is read as it was written', () => {
  expect(readPosition(positionText({ turn: 12, seq: 345 }))).toEqual({ turn: 12, seq: 345 });
});

it.each([
  undefined,
  null,
  7,
  {},
  '',
  '1',
  '1.',
  '.1',
  '-1.2',
  '1.2.3',
  ' 1.2',
  `${'9'.repeat(16)}.1`,
])('is not %j', (text) => {
  expect(readPosition(text)).toBeUndefined();
});

it('is ordered by turn, then by frame', () => {
  expect(isAfter({ turn: 2, seq: 1 }, { turn: 1, seq: 9 })).toBe(true);
  expect(isAfter({ turn: 1, seq: 10 }, { turn: 1, seq: 9 })).toBe(true);
  expect(isAfter({ turn: 1, seq: 9 }, { turn: 1, seq: 9 })).toBe(false);
  expect(isAfter({ turn: 1, seq: 9 }, { turn: 2, seq: 1 })).toBe(false);
});
