import { afterEach, describe, expect, it } from 'vitest';
import { bundledVariables } from './support/bundled-variables.js';
import { startHost, type TestHost } from './support/host.js';
import { TestUser } from './support/user.js';

const LIMIT = 5;

let host: TestHost;
afterEach(() => host.close());

const start = async () => {
  const env = Object.assign({}, ...Object.values(bundledVariables));
  const limits = { RATE_LIMIT_ANONYMOUS_PER_MINUTE: String(LIMIT) };
  host = await startHost({ env: { ...env, ...limits, OUTGOING_ALLOW: '127.0.0.1' } });
};

const fetchStatus = async (method: string, path: string, headers: Record<string, string>) =>
  (await fetch(host.url + path, { method, headers, redirect: 'manual' })).status;

const publicRoutes: readonly (readonly [string, string])[] = [
  ['GET', '/'],
  ['GET', '/models'],
  ['GET', '/plugins'],
  ['GET', '/.well-known/oracle.json'],
  ['GET', '/docs'],
  ['GET', '/DOCS/openapi.json'],
  ['GET', '/app/'],
  ['GET', '/app/settings.json'],
  ['POST', '/slack/events'],
  ['POST', '/claims/process'],
];

const disguises: readonly (readonly [string, Record<string, string>])[] = [
  ['nothing', {}],
  ['a false delegation', { 'x-ucan-delegation': 'x' }],
  ['a false invocation', { authorization: 'Bearer x', 'x-auth-type': 'ucan' }],
  ['an empty invocation', { authorization: 'Bearer', 'x-auth-type': 'UCAN ' }],
  ['an address of its choice', { 'x-forwarded-for': '203.0.113.7', 'x-real-ip': '203.0.113.7' }],
];

describe('an unauthenticated client with', () => {
  it.each(disguises)('%s is limited on every public route', async (_, headers) => {
    await start();
    for (let i = 0; i < LIMIT; i++) await fetchStatus('GET', '/models', headers);
    for (const [method, path] of publicRoutes)
      expect(await fetchStatus(method, path, headers), `${method} ${path}`).toBe(429);
    expect(await fetchStatus('GET', '/health', headers)).toBe(200);
    expect((await new TestUser(host).request('GET', '/sessions')).status).toBe(200);
  });
});

it('RateLimits counts every unauthenticated request once, when it begins', async () => {
  await start();
  const statuses: number[] = [];
  for (let i = 0; i < LIMIT + 1; i++) statuses.push(await fetchStatus('GET', '/sessions', {}));
  expect(statuses).toEqual([...Array(LIMIT).fill(401), 429]);
});

it('RateLimits limits attempts to guess CRON_SECRET', async () => {
  await start();
  const guess = (i: number) =>
    fetchStatus('POST', '/claims/process', {
      authorization: `Bearer guess ${i}`,
      'x-ucan-delegation': `${i}`,
    });
  const statuses = await Promise.all(Array.from({ length: 4 * LIMIT }, (_, i) => guess(i)));
  expect(statuses.filter((status) => status === 401)).toHaveLength(LIMIT);
  expect(statuses.filter((status) => status === 429)).toHaveLength(3 * LIMIT);
});
