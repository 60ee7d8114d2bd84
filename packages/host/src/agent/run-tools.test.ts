import { expect, it } from 'vitest';
import { shortenResult, takeCallId, toErrorText, toResultText } from './run-tools.js';

it.each([
  ['an object', { a: [1, null] }, '{"a":[1,null]}'],
  ['a text', 'hi', '"hi"'],
  ['nothing', undefined, 'null'],
  ['a function', () => 1, 'null'],
  ['a big number', { n: 12n }, '{"n":"12"}'],
  ['a date', new Date(0), '"1970-01-01T00:00:00.000Z"'],
])('toResultText writes %s as JSON', (_, value, text) => {
  expect(toResultText(value)).toBe(text);
});

it('toResultText replaces cycles, and only those', () => {
  const shared = { s: 1 };
  const value: Record<string, unknown> = { a: shared, b: shared, n: 5n };
  value.self = { value };
  expect(JSON.parse(toResultText(value))).toEqual({
    a: { s: 1 },
    b: { s: 1 },
    n: '5',
    self: { value: '[circular]' },
  });
});

it('toResultText throws for a value that cannot be converted', () => {
  const bad = {
    toJSON: () => {
      throw new Error('closed');
    },
  };
  expect(() => toResultText(bad)).toThrow('closed');
});

it('toResultText limits a result, which stays JSON', () => {
  const text = toResultText({ rows: 'a"\n'.repeat(100_000) });
  expect(text.length).toBeLessThanOrEqual(100_000);
  expect(text.length).toBeGreaterThan(50_000);
  expect(JSON.parse(text)).toMatchObject({ note: expect.stringContaining('500011 characters') });
});

it('shortenResult splits between whole characters at every limit', () => {
  const text = JSON.stringify('😀"\\'.repeat(2000));
  for (const limit of [0, 1, 100, 150, 500, 501, 502, 503, 5000]) {
    const short = shortenResult(text, limit);
    expect(JSON.parse(short).beginning.isWellFormed()).toBe(true);
    expect(short.length).toBeLessThanOrEqual(Math.max(limit, 120));
  }
  expect(shortenResult(text, text.length)).toBe(text);
});

it('toErrorText reports an error in one line', () => {
  expect(toErrorText(new Error('a\n at b'))).toBe('{"error":"a at b"}');
  expect(toErrorText({ message: 'from afar' })).toBe('{"error":"from afar"}');
  expect(toErrorText({ message: 3 })).toBe('{"error":"The tool failed."}');
  expect(toErrorText(new Error(''))).toBe('{"error":"The tool failed."}');
});

it('takeCallId takes no id with the characters that separate paths', () => {
  const taken = new Set<string>();
  expect(takeCallId('a/b#1', taken)).toBe('a_b_1');
  expect(takeCallId('a/b#1', taken)).toMatch(/^call_\w+$/);
  expect(takeCallId('a', taken)).toBe('a');
});
