import { expect, it } from 'vitest';
import { compareVectors, mergeRankings, toVector } from './embeddings.js';

it('compareVectors compares directions of any length', () => {
  const random = () => Array.from({ length: 256 }, () => Math.random() - 0.5);
  const cosine = (a: readonly number[], b: readonly number[]) =>
    a.reduce((sum, value, i) => sum + value * (b[i] ?? 0), 0) /
    (Math.hypot(...a) * Math.hypot(...b));
  for (let i = 0; i < 20; i++) {
    const [a, b] = [random(), random()];
    expect(compareVectors(toVector(a), toVector(b))).toBeCloseTo(cosine(a, b), 1);
    expect(compareVectors(toVector(a), toVector(a.map((value) => value * 7)))).toBeCloseTo(1, 1);
  }
  expect(compareVectors(toVector([1, 0]), toVector([-1, 0]))).toBe(-1);
  expect(compareVectors(toVector([0, 0]), toVector([1, 0]))).toBe(0);
  expect(compareVectors(toVector([1]), toVector([1, 0]))).toBe(0);
});

it('compareVectors reads a vector inside a larger buffer', () => {
  const vector = toVector([0.6, 0.8]);
  const inside = new Uint8Array([99, ...vector, 99]).subarray(1, 3);
  expect(compareVectors(vector, inside)).toBeCloseTo(1, 1);
});

it('mergeRankings puts first what several rankings have found', () => {
  const merge = (...rankings: string[]) =>
    mergeRankings(
      rankings.map((ranking) => [...ranking]),
      (item) => item,
    ).join('');
  expect(merge('abc', 'cd')).toBe('cabd');
  expect(merge('ab', '')).toBe('ab');
});
