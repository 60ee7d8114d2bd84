import { describe, expect, it } from 'vitest';
import { findFirstRecentTurn, splitIntoSpans, takeWholeTurns } from './message-store.js';

describe('the size of turns', () => {
  const KB = 1024;
  /** Messages of whole kilobytes, one in each turn; each takes another one beside its text. */
  const list = (sizes: readonly number[]) =>
    sizes.map((size, i) => ({ turn: i + 1, bytes: (size - 1) * KB }));
  const newest = (sizes: readonly number[]) => list(sizes).toReversed();

  it('findFirstRecentTurn begins at the same turn for many turns', () => {
    const begins = (count: number) => findFirstRecentTurn(newest(Array(count).fill(1)), 30 * KB);
    const all = Array.from({ length: 1000 }, (_, i) => begins(i + 1));
    expect(all.slice(0, 59)).toEqual(Array(59).fill(1));
    expect(all).toEqual(all.toSorted((a, b) => a - b));
    expect(new Set(all).size).toBeLessThan(1000 / 15);
    expect(findFirstRecentTurn([], 30)).toBe(0);
  });

  it('findFirstRecentTurn reads at least the requested size, and less than twice as much and one turn', () => {
    const sizes = [5, 40, 3, 17, 29, 1, 12, 8, 33, 2];
    for (let size = 1; size <= 80; size += 1) {
      const first = findFirstRecentTurn(newest(sizes), size * KB);
      const read = sizes.slice(first - 1);
      const sum = read.reduce((total, each) => total + each, 0);
      expect(sum).toBeGreaterThanOrEqual(size);
      expect(sum - (read[0] ?? 0)).toBeLessThan(2 * size);
    }
  });

  it('splitIntoSpans has all turns once, and spans of at most the size unless a turn is larger', () => {
    const end = 99;
    expect(splitIntoSpans(list([10, 10, 10, 50, 10]), 20 * KB, end)).toEqual([
      { first: 1, last: 2 },
      { first: 3, last: 3 },
      { first: 4, last: 4 },
      { first: 5, last: end },
    ]);
    expect(splitIntoSpans(list([50, 10]), 20 * KB, end)).toEqual([
      { first: 1, last: 1 },
      { first: 2, last: end },
    ]);
    expect(splitIntoSpans([], 20 * KB, end)).toEqual([{ first: 0, last: end }]);
    const gap = [
      { turn: 3, bytes: 8 * KB },
      { turn: 3, bytes: 8 * KB },
      { turn: 7, bytes: 8 * KB },
    ];
    expect(splitIntoSpans(gap, 20 * KB, end)).toEqual([
      { first: 3, last: 6 },
      { first: 7, last: end },
    ]);
  });

  it('takeWholeTurns leaves out the last turn, of which there may be more, unless it is the only one', () => {
    const measure = (...turns: readonly number[]) => turns.map((turn) => ({ turn, bytes: 1 }));
    expect(takeWholeTurns(measure(1, 1, 2))).toEqual({ sizes: measure(1, 1), last: 1 });
    expect(takeWholeTurns(measure(1, 1))).toEqual({ sizes: measure(1, 1), last: 1 });
  });
});
