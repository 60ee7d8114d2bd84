import { expect, it } from 'vitest';
import { errorCatalog, OracleError } from './errors.js';

it('says the two 401 texts letter for letter', () => {
  expect(errorCatalog.missing_authentication).toEqual([
    401,
    'Missing UCAN authentication: provide Authorization: Bearer <invocation> with X-Auth-Type: ucan, or an x-ucan-delegation header',
  ]);
  expect(errorCatalog.invalid_invocation).toEqual([401, 'Invalid UCAN invocation']);
});

it('has a snake_case code, an error status and a text for every failure', () => {
  for (const [code, [status, text]] of Object.entries(errorCatalog)) {
    expect(code).toMatch(/^[a-z]+(_[a-z]+)*$/);
    expect(status).toBeGreaterThanOrEqual(400);
    expect(text.length).toBeGreaterThan(10);
  }
});

it('takes status and text from the catalogue', () => {
  const error = new OracleError('session_not_found');
  expect(error).toMatchObject({ code: 'session_not_found', status: 404, fields: {} });
  expect(error.message).toBe('No such session');
});

it('keeps one line per field', () => {
  const error = new OracleError('validation_failed', { message: ['a: bad', 'b: bad'] });
  expect(error.lines).toEqual(['a: bad', 'b: bad']);
  expect(error.message).toBe('a: bad; b: bad');
});
