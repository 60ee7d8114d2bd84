import { createHash } from 'node:crypto';
import { afterEach, expect, it } from 'vitest';
import { startTestNode } from '../../demo-chain/test/support/test-node.js';
import { ask, type RunningGateway, startGateway } from './support/running-gateway.js';

const PARAMS = '/ixo/entity/params';
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

const sha256 = (key: string) => createHash('sha256').update(key).digest('hex');

async function startGated(keys: string, env: Record<string, string> = {}): Promise<RunningGateway> {
  const node = await startTestNode();
  cleanups.push(() => node.close());
  const gateway = await startGateway([node], {
    GATEWAY_AUTH: 'api-key',
    GATEWAY_API_KEYS: keys,
    ...env,
  });
  cleanups.push(() => gateway.close());
  return gateway;
}

it('lets holders of a key in, by either header', async () => {
  const gateway = await startGated(`${sha256('one')},${sha256('two').toUpperCase()};name=mobile`);
  for (const key of ['one', 'two']) {
    expect((await gateway.get(PARAMS, { 'x-api-key': key })).status).toBe(200);
    expect((await gateway.get(PARAMS, { authorization: `Bearer ${key}` })).status).toBe(200);
  }
});

it.each([
  ['nothing', {}],
  ['an unknown key', { 'x-api-key': 'three' }],
  ['the digest itself', { 'x-api-key': sha256('one') }],
  ['an empty key', { 'x-api-key': '' }],
  ['another scheme', { authorization: 'Basic one' }],
])('answers 401 to %s', async (_, headers) => {
  const gateway = await startGated(sha256('one'));
  for (const path of [PARAMS, '/ixo/nope', '/metrics']) {
    const answer = await gateway.get(path, headers as Record<string, string>);
    expect(answer).toMatchObject({ status: 401, json: { code: 16, details: [] } });
    expect(answer.headers.get('www-authenticate')).toBe('Bearer');
  }
  const batch = await ask(`${gateway.url}/batch`, { method: 'POST', body: '{}' });
  expect(batch.status).toBe(401);
});

it('ApiKeyGate leaves /health, /docs and /routes public', async () => {
  const gateway = await startGated(sha256('one'));
  for (const path of ['/', '/health', '/docs', '/docs/openapi.json', '/routes']) {
    expect((await gateway.get(path)).status).toBe(200);
  }
});

it('keeps a key to its routes, by the template and not by the path as sent', async () => {
  const scoped = `${sha256('one')};scope=/ixo/entity/*|/ixo/claims/params`;
  const gateway = await startGated(scoped);
  const headers = { 'x-api-key': 'one' };
  expect((await gateway.get(PARAMS, headers)).status).toBe(200);
  expect((await gateway.get('/ixo/claims/params', headers)).status).toBe(200);
  expect((await gateway.get('/ixo/entity/config', headers)).status).toBe(200);
  for (const path of ['/ixo/claims/claims', '/ixo/token/params', '/ixo/entity/../token/params']) {
    const { status, json } = await gateway.get(path, headers);
    expect({ status, code: json.code }).toEqual({ status: 403, code: 7 });
  }
  const batch = await ask(`${gateway.url}/batch`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ queries: [PARAMS, '/ixo/token/params'] }),
  });
  expect(batch.json.results.map(({ status }: { status: number }) => status)).toEqual([200, 403]);
});

it('limits each key by itself, its own limit before that of all', async () => {
  const keys = `${sha256('slow')};limit=2,${sha256('usual')}`;
  const gateway = await startGated(keys, { GATEWAY_RATE_LIMIT_PER_MINUTE: '4' });
  const statuses = async (key: string, count: number) => {
    const queryService = [];
    for (let i = 0; i < count; i += 1)
      queryService.push(await gateway.get(PARAMS, { 'x-api-key': key }));
    return queryService;
  };
  const slow = await statuses('slow', 3);
  expect(slow.map(({ status }) => status)).toEqual([200, 200, 429]);
  expect(Number(slow[2]?.headers.get('retry-after'))).toBeGreaterThan(0);
  expect(slow[2]?.json).toMatchObject({ code: 8, details: [] });
  const usual = await statuses('usual', 5);
  expect(usual.map(({ status }) => status)).toEqual([200, 200, 200, 200, 429]);
});

it('counts each query of a batch', async () => {
  const gateway = await startGated(`${sha256('one')};limit=4`);
  const batch = (count: number) =>
    ask(`${gateway.url}/batch`, {
      method: 'POST',
      headers: { 'x-api-key': 'one' },
      body: JSON.stringify({ queries: Array.from({ length: count }, () => PARAMS) }),
    });
  // A refused batch costs one: its body was read.
  expect((await batch(5)).status).toBe(429);
  expect((await batch(3)).status).toBe(200);
  expect((await batch(2)).status).toBe(429);
});

it('sends Cache-Control: private with API keys', async () => {
  const gateway = await startGated(sha256('one'));
  const { headers } = await gateway.get(`${PARAMS}?height=60`, { 'x-api-key': 'one' });
  expect(headers.get('cache-control')).toMatch(/^private,/);
});

it('stops listening to an address that only fails', async () => {
  const gateway = await startGated(sha256('one'));
  const startedAt = performance.now();
  const guess = async () => (await gateway.get(PARAMS, { 'x-api-key': 'guess' })).status;
  const statuses = await Promise.all(Array.from({ length: 200 }, guess));
  while (statuses.at(-1) !== 429) statuses.push(await guess());
  // 120 a minute are allowed at once; two more come back every second that the test takes.
  const returned = Math.ceil((performance.now() - startedAt) / 500);
  const checked = statuses.filter((status) => status === 401).length;
  expect(checked).toBeGreaterThanOrEqual(120);
  expect(checked).toBeLessThanOrEqual(120 + returned);
});

it('admits a valid key from an address that keeps failing', async () => {
  const gateway = await startGated(sha256('one'));
  const statusWith = async (key: string) =>
    (await gateway.get(PARAMS, { 'x-api-key': key })).status;
  await expect.poll(() => statusWith('guess'), { interval: 0, timeout: 60_000 }).toBe(429);
  expect(await statusWith('one')).toBe(200);
});

it('does not hold valid keys against an address', async () => {
  const gateway = await startGated(sha256('one'));
  const queryService = await Promise.all(
    Array.from({ length: 300 }, () => gateway.get(PARAMS, { 'x-api-key': 'one' })),
  );
  expect(new Set(queryService.map(({ status }) => status))).toEqual(new Set([200]));
});

it('never logs or sends a key or its digest', async () => {
  const gateway = await startGated(sha256('one'));
  await gateway.get(PARAMS, { 'x-api-key': 'one' });
  const metrics = (await gateway.get('/metrics', { 'x-api-key': 'one' })).text;
  const said = JSON.stringify(gateway.log) + metrics + (await gateway.get('/health')).text;
  expect(said).not.toContain(sha256('one'));
});
