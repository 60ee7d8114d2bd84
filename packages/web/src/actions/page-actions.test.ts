import { describe, expect, it } from 'vitest';
import { readChart, readTable } from './chart.js';
import { readForm } from './form.js';

/** Values that no schema allows but models may send. */
const unexpected: readonly unknown[] = [
  undefined,
  null,
  0,
  1e308,
  '',
  '<script>alert(1)</script>',
  [],
  [null],
  [[]],
  [{}],
  {},
  { length: 3 },
  JSON.parse('{"toString": 1, "valueOf": 1, "__proto__": {"a": 1}}'),
];

describe.each([
  ['chart', readChart, ['title', 'kind', 'unit', 'points']],
  ['form', readForm, ['title', 'fields']],
  ['table', readTable, ['title', 'columns', 'rows']],
] as const)('reading a %s', (_, read, fields) => {
  it('never throws on unexpected values', () => {
    for (const value of unexpected)
      for (const field of fields) expect(() => read({ [field]: value })).not.toThrow();
  });
});

it('readForm accepts fields of any type', () => {
  const fields = unexpected.flatMap((value) => [
    { name: value },
    { name: 'a', label: value },
    { name: 'a', kind: value },
    { name: 'a', kind: 'choice', choices: value },
  ]);
  for (const { label, choices } of readForm({ fields }).fields)
    expect([label, ...choices].every((text) => typeof text === 'string')).toBe(true);
});

it('readChart accepts points of any type', () => {
  const points = unexpected.flatMap((value) => [
    { label: value, value: 1 },
    { label: 'a', value },
  ]);
  for (const { label, value } of readChart({ points }).points)
    expect([typeof label, Number.isFinite(value)]).toEqual(['string', true]);
  expect(readChart({ points: Array(200_000).fill({ value: 1 }) }).points).toHaveLength(100);
});
