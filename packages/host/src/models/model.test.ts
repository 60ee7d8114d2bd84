import { expect, it } from 'vitest';
import { readRetryAfter, toModelError } from './model.js';

it.each([
  [429, 'insufficient_quota', '', 'billing'],
  [400, 'invalid_request_error', 'Your credit balance is too low', 'billing'],
  [400, 'INVALID_ARGUMENT API_KEY_INVALID', 'API key not valid.', 'auth'],
  // Google says this of its limits a minute, and names the time to wait.
  [
    429,
    'RESOURCE_EXHAUSTED',
    'You exceeded your quota, check your plan and billing details',
    'rate_limit',
  ],
  [529, 'overloaded_error', 'Overloaded', 'server'],
  [504, '', '', 'timeout'],
  [413, '', 'too large', 'unknown'],
])('toModelError classifies %i %j %j as %s', (status, code, text, kind) => {
  expect(toModelError({ status, code, text })).toMatchObject({ kind });
});

it('toModelError shortens the text of a provider and removes addresses and keys', () => {
  const text = `Bad\n\u0000request at https://u:p@h/x?key=1 by sk-ab12 and ${'A'.repeat(40)}, key abc***def. ${'more '.repeat(99)}`;
  const { message } = toModelError({ status: 400, text });
  expect(message).toMatch(
    /^The model's provider refused the request: Bad request at … by … and …, key …\. more/,
  );
  expect(message.length).toBeLessThan(260);
});

it('readRetryAfter reads every format of the delay', () => {
  const now = Date.parse('2030-01-01T00:00:00Z');
  expect(readRetryAfter({ 'retry-after-ms': '1500' }, '')).toBe(1.5);
  expect(readRetryAfter({ 'retry-after': '30' }, '')).toBe(30);
  expect(readRetryAfter({ 'retry-after': 'Tue, 01 Jan 2030 00:00:09 GMT' }, '', now)).toBe(9);
  expect(readRetryAfter({}, '{"details":[{"retryDelay": "34s"}]}')).toBe(34);
  expect(readRetryAfter({ 'retry-after': 'soon' }, '')).toBeUndefined();
});
