import { expect, it } from 'vitest';
import { z } from 'zod';
import { errorCatalog, OracleError } from './errors.js';
import { describeIssues } from './schema-issues.js';

it('errorCatalog has the exact texts of the two 401 errors', () => {
  expect(errorCatalog.missing_authentication).toEqual([
    401,
    'Missing UCAN authentication: provide Authorization: Bearer <invocation> with X-Auth-Type: ucan, or an x-ucan-delegation header',
  ]);
  expect(errorCatalog.invalid_invocation).toEqual([401, 'Invalid UCAN invocation']);
});

it('errorCatalog has a snake_case code, an error status and a text for every error', () => {
  for (const [code, [status, text]] of Object.entries(errorCatalog)) {
    expect(code).toMatch(/^[a-z]+(_[a-z]+)*$/);
    expect(status).toBeGreaterThanOrEqual(400);
    expect(text.length).toBeGreaterThan(10);
  }
});

it('OracleError takes status and text from errorCatalog', () => {
  const error = new OracleError('session_not_found');
  expect(error).toMatchObject({ code: 'session_not_found', status: 404, fields: {} });
  expect(error.message).toBe('No such session');
});

it('OracleError keeps one line per field', () => {
  const error = new OracleError('validation_failed', { message: ['a: bad', 'b: bad'] });
  expect(error.lines).toEqual(['a: bad', 'b: bad']);
  expect(error.message).toBe('a: bad; b: bad');
});

const linesFor = (schema: z.ZodType, value: unknown) =>
  describeIssues(schema.safeParse(value).error?.issues ?? [], 'body');

it('describeIssues names the field of each issue, or the value itself', () => {
  const schema = z.object({ a: z.object({ b: z.array(z.string()) }) });
  expect(linesFor(schema, { a: { b: ['x', 1] } })).toEqual([
    expect.stringMatching(/^a\.b\.1: .*expected string/),
  ]);
  expect(linesFor(schema, 1)).toEqual([expect.stringMatching(/^body: /)]);
});

it('describeIssues names every unknown field', () => {
  expect(linesFor(z.strictObject({}), { a: 1, b: 2 })).toEqual([
    'a: unknown field',
    'b: unknown field',
  ]);
});

it('describeIssues names what each alternative expects', () => {
  const [line] = linesFor(z.object({ id: z.union([z.string(), z.number()]) }), { id: true });
  expect(line).toMatch(/^id: .*expected string.*, or .*expected number/);
});

it('describeIssues reads the paths of other schemas', () => {
  expect(describeIssues([{ message: 'is odd', path: [{ key: 'a' }, 0] }], 'body')).toEqual([
    'a.0: is odd',
  ]);
});

it('describeIssues is short, however much is wrong', () => {
  const issues = Array.from({ length: 100_000 }, (_, n) => ({
    message: 'x'.repeat(999),
    path: [n],
  }));
  const lines = describeIssues(issues, 'body');
  expect(lines).toHaveLength(21);
  expect(lines.at(-1)).toBe('and 99980 more');
  expect(lines.join('').length).toBeLessThan(7000);
});
