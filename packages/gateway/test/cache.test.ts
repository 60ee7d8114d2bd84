import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { startTestNode, type TestNode } from '../../demo-chain/test/support/test-node.js';
import { ENTITY_PARAMS, entityParams, largeEntityParams } from './support/entity-params.js';
import { ask, type RunningGateway, startGateway } from './support/running-gateway.js';

const PARAMS = '/ixo/entity/params';
const SECRET = 'a secret of the operator';
let node: TestNode;
let gateway: RunningGateway;

async function start(env: Record<string, string> = {}): Promise<void> {
  gateway = await startGateway([node], { GATEWAY_CACHE_BYPASS_SECRET: SECRET, ...env });
}

beforeEach(async () => {
  node = await startTestNode();
});

afterEach(async () => {
  await gateway.close();
  await node.close();
});

const calls = () => node.countCalls(ENTITY_PARAMS);

const height = async () => (await gateway.get('/health')).json.latestHeight;

/** Makes a block and waits until the gateway has noticed. */
async function nextBlock(): Promise<void> {
  node.blocks.latest += 1;
  await expect.poll(height).toBe(String(node.blocks.latest));
}

it('SingleFlight makes one call for a thousand concurrent equal requests', async () => {
  await start();
  const gate = Promise.withResolvers<undefined>();
  node.interrupt(({ method }) => (method === ENTITY_PARAMS ? gate.promise : undefined));
  const requests = Array.from({ length: 1000 }, () => gateway.get(PARAMS));
  await expect.poll(calls).toBe(1);
  gate.resolve(undefined);
  const queryService = await Promise.all(requests);
  expect(new Set(queryService.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
  expect(queryService[0]?.status).toBe(200);
  expect(calls()).toBe(1);
});

it('knows the latest until the next block', async () => {
  await start();
  for (let i = 0; i < 3; i += 1) await gateway.get(PARAMS);
  expect(calls()).toBe(1);
  await nextBlock();
  expect((await gateway.get(PARAMS)).headers.get('x-block-height')).toBe('101');
  expect(calls()).toBe(2);
});

it('notices a block by a reply before it looks for one', async () => {
  await start({ GATEWAY_BLOCK_POLL_MS: '600000' });
  await gateway.get(PARAMS);
  node.blocks.latest = 101;
  await gateway.get('/ixo/claims/params');
  await gateway.get(PARAMS);
  expect(calls()).toBe(2);
});

it('ReplyCache keeps replies of a fixed height', async () => {
  await start();
  const before = await gateway.get(`${PARAMS}?height=60`);
  await nextBlock();
  const after = await gateway.get(PARAMS, { 'x-cosmos-block-height': '60' });
  expect(after.text).toBe(before.text);
  expect(calls()).toBe(1);
});

it('clears the ReplyCache when the chain is reset', async () => {
  await start();
  await gateway.get(`${PARAMS}?height=60`);
  node.blocks.latest = 70;
  await expect.poll(height).toBe('70');
  await gateway.get(`${PARAMS}?height=60`);
  expect(calls()).toBe(2);
});

it('shares cached replies between different spellings of a query', async () => {
  await start();
  await gateway.get('/ixo/claims/claims?pagination.limit=2&pagination.reverse=true&unknown=1');
  await gateway.get('/ixo/claims/claims?pagination.reverse=1&pagination.limit=0x2');
  expect(node.countCalls('ixo.claims.v1beta1.Query/ClaimList')).toBe(1);
});

it('ignores unknown Grpc-Metadata-* headers: they neither reach a node nor make a cache entry', async () => {
  await start();
  for (let i = 0; i < 20; i += 1) {
    const headers = { [`grpc-metadata-x-${i}`]: `${i}`, 'grpc-metadata-x-tenant': `${i}` };
    expect((await gateway.get(PARAMS, headers)).status).toBe(200);
  }
  expect(calls()).toBe(1);
  const { text } = await gateway.get('/metrics');
  expect(text).toMatch(/^sibyl_gateway_cache_entries 1$/m);
});

it('forwards the Grpc-Metadata-* headers that GATEWAY_FORWARD_METADATA names, past the cache', async () => {
  await start({ GATEWAY_FORWARD_METADATA: 'x-tenant', GATEWAY_CORS_ORIGIN: '*' });
  for (const tenant of ['a', 'a', 'b']) {
    expect((await gateway.get(PARAMS, { 'grpc-metadata-x-tenant': tenant })).status).toBe(200);
  }
  expect(calls()).toBe(3);
  const fixed = await gateway.get(`${PARAMS}?height=60`, { 'grpc-metadata-x-tenant': 'a' });
  expect(fixed.headers.get('cache-control')).toBe('private, no-cache');
  expect(fixed.headers.get('vary')).toContain('grpc-metadata-x-tenant');
  const { text } = await gateway.get('/metrics');
  expect(text).toMatch(/^sibyl_gateway_cache_entries 0$/m);
  const preflight = await ask(gateway.url + PARAMS, {
    method: 'OPTIONS',
    headers: { origin: 'https://app.example', 'access-control-request-method': 'GET' },
  });
  const allowed = preflight.headers.get('access-control-allow-headers');
  expect(allowed).toContain('grpc-metadata-x-tenant');
  const long = await gateway.get(PARAMS, { 'grpc-metadata-x-tenant': 'a'.repeat(1025) });
  expect(long).toMatchObject({ status: 400, json: { code: 3 } });
});

it('shares one call between equal requests with different Grpc-Timeout headers', async () => {
  await start();
  const gate = Promise.withResolvers<undefined>();
  node.interrupt(({ method }) => (method === ENTITY_PARAMS ? gate.promise : undefined));
  const requests = Array.from({ length: 200 }, (_, i) =>
    gateway.get(PARAMS, { 'grpc-timeout': `${9_000 + i}m` }),
  );
  const counted = async (outcome: string) =>
    new RegExp(`outcome="${outcome}"} (\\d+)`).exec((await gateway.get('/metrics')).text)?.[1];
  await expect.poll(() => counted('shared')).toBe('199');
  gate.resolve(undefined);
  const queryService = await Promise.all(requests);
  expect(new Set(queryService.map(({ status }) => status))).toEqual(new Set([200]));
  expect(calls()).toBe(1);
});

it('does not keep errors', async () => {
  await start();
  node.interrupt(({ method }) => {
    if (method === ENTITY_PARAMS) throw new GrpcError(GrpcCode.internal, 'a bad moment');
    return undefined;
  });
  expect((await gateway.get(PARAMS)).status).toBe(500);
  node.interrupt();
  expect((await gateway.get(PARAMS)).status).toBe(200);
});

it('does not serve the latest block while no node is available', async () => {
  await start();
  expect((await gateway.get(PARAMS)).status).toBe(200);
  await node.close();
  await expect.poll(async () => (await gateway.get(PARAMS)).status).toBe(503);
});

it('X-Cache-Bypass queries the node', async () => {
  await start();
  let sequence = 0;
  node.interrupt(({ method }) => {
    sequence += 1;
    return method === ENTITY_PARAMS ? { message: entityParams(sequence), height: 100 } : undefined;
  });
  const cached = await gateway.get(PARAMS);
  expect((await gateway.get(PARAMS)).text).toBe(cached.text);
  const fresh = await gateway.get(PARAMS, { 'x-cache-bypass': SECRET });
  expect(fresh.text).not.toBe(cached.text);
  expect((await gateway.get(PARAMS)).text).toBe(fresh.text);
  const guessed = await gateway.get(PARAMS, { 'x-cache-bypass': 'guess' });
  expect(guessed).toMatchObject({ status: 403, json: { code: 7 } });
});

it('respects GATEWAY_CACHE_SIZE and evicts the least recently used', async () => {
  await start({ GATEWAY_CACHE_SIZE: '1mb' });
  node.interrupt(({ method, height = 100 }) =>
    method === ENTITY_PARAMS ? { message: largeEntityParams(100_000), height } : undefined,
  );
  await gateway.get(`${PARAMS}?height=1`);
  for (let height = 2; height <= 30; height += 1) {
    await gateway.get(`${PARAMS}?height=${height}`, { 'accept-encoding': 'identity' });
    await gateway.get(`${PARAMS}?height=1`);
  }
  expect(calls()).toBe(30);
  await gateway.get(`${PARAMS}?height=2`);
  expect(calls()).toBe(31);
  const metrics = (await gateway.get('/metrics')).text;
  const bytes = Number(/^sibyl_gateway_cache_bytes (\d+)$/m.exec(metrics)?.[1]);
  expect(bytes).toBeGreaterThan(500_000);
  expect(bytes).toBeLessThanOrEqual(1024 * 1024);
});

it('SingleFlight keeps the call while other callers wait', async () => {
  await start();
  const gate = Promise.withResolvers<undefined>();
  node.interrupt(({ method }) => (method === ENTITY_PARAMS ? gate.promise : undefined));
  const hasty = gateway.get(PARAMS, { 'grpc-timeout': '100m' });
  const waiting = gateway.get(PARAMS);
  expect((await hasty).status).toBe(504);
  gate.resolve(undefined);
  expect((await waiting).status).toBe(200);
});

const inFlight = async () =>
  /^sibyl_gateway_node_calls\{.*\} (\d+)$/m.exec((await gateway.get('/metrics')).text)?.[1];

it('SingleFlight cancels the call when the last caller leaves', async () => {
  await start();
  node.interrupt(({ method }) => (method === ENTITY_PARAMS ? new Promise(() => {}) : undefined));
  const leaving = [new AbortController(), new AbortController()];
  const waiting = leaving.map(({ signal }) =>
    fetch(gateway.url + PARAMS, { signal }).catch(() => 'left'),
  );
  await expect.poll(calls).toBe(1);
  leaving[0]?.abort();
  expect(await waiting[0]).toBe('left');
  expect(await inFlight()).toBe('1');
  leaving[1]?.abort();
  await expect.poll(inFlight).toBe('0');
});

it.each<[string, string, RequestInit]>([
  ['batch', '/batch', { method: 'POST', body: JSON.stringify({ queries: [PARAMS] }) }],
  ['watch', `${PARAMS}?watch`, {}],
])('cancels the calls of a %s when its client leaves', async (_, path, init) => {
  await start();
  node.interrupt(({ method }) => (method === ENTITY_PARAMS ? new Promise(() => {}) : undefined));
  const leaving = new AbortController();
  const { signal } = leaving;
  const waiting = ask(gateway.url + path, { ...init, signal }).catch(() => 'left');
  await expect.poll(calls).toBe(1);
  expect(await inFlight()).toBe('1');
  leaving.abort();
  expect(await waiting).toBe('left');
  await expect.poll(inFlight, { timeout: 10_000 }).toBe('0');
});
