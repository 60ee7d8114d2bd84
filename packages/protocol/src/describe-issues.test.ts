import { expect, it } from 'vitest';
import { z } from 'zod';
import { describeIssues } from './describe-issues.js';

const linesFor = (schema: z.ZodType, value: unknown) =>
  describeIssues(schema.safeParse(value).error?.issues ?? [], 'body');

it('names the field of each issue, or the value itself', () => {
  const schema = z.object({ a: z.object({ b: z.array(z.string()) }) });
  expect(linesFor(schema, { a: { b: ['x', 1] } })).toEqual([
    expect.stringMatching(/^a\.b\.1: .*expected string/),
  ]);
  expect(linesFor(schema, 1)).toEqual([expect.stringMatching(/^body: /)]);
});

it('names every field that nobody knows', () => {
  expect(linesFor(z.strictObject({}), { a: 1, b: 2 })).toEqual([
    'a: unknown field',
    'b: unknown field',
  ]);
});

it('tells what each alternative would have wanted', () => {
  const [line] = linesFor(z.object({ id: z.union([z.string(), z.number()]) }), { id: true });
  expect(line).toMatch(/^id: .*expected string.*, or .*expected number/);
});

it('reads the paths of other schemas', () => {
  expect(describeIssues([{ message: 'is odd', path: [{ key: 'a' }, 0] }], 'body')).toEqual([
    'a.0: is odd',
  ]);
});

it('is short, however much is wrong', () => {
  const issues = Array.from({ length: 100_000 }, (_, n) => ({
    message: 'x'.repeat(999),
    path: [n],
  }));
  const lines = describeIssues(issues, 'body');
  expect(lines).toHaveLength(21);
  expect(lines.at(-1)).toBe('and 99980 more');
  expect(lines.join('').length).toBeLessThan(7000);
});
