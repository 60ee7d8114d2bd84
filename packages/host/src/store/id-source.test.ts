import { expect, it } from 'vitest';
import { createIdSource } from './id-source.js';

it('createIdSource creates UUIDs of version 7', () => {
  const newId = createIdSource(Date.now);
  expect(newId()).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

it('createIdSource creates ids in order, also more than fit in one millisecond', () => {
  const newId = createIdSource(() => 1_700_000_000_000);
  const ids = Array.from({ length: 20_000 }, newId);
  expect(ids.toSorted()).toEqual(ids);
  expect(new Set(ids).size).toBe(ids.length);
});

it('createIdSource creates ids in order if the clock goes back', () => {
  const times = [1_000, 2_000, 500, 2_001];
  const newId = createIdSource(() => times.shift() ?? 0);
  const ids = Array.from({ length: 4 }, newId);
  expect(ids.toSorted()).toEqual(ids);
});
