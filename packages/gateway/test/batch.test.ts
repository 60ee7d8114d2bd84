import { compileErrors, validate } from '@readme/openapi-parser';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startTestNode, type TestNode } from '../../demo-chain/test/support/test-node.js';
import { ask, type RunningGateway, startGateway } from './support/running-gateway.js';

let node: TestNode;
let gateway: RunningGateway;

beforeAll(async () => {
  node = await startTestNode();
  gateway = await startGateway([node], { GATEWAY_BATCH_LIMIT: '5' });
});

afterAll(async () => {
  await gateway.close();
  await node.close();
});

const STATUS = 'cosmos.base.node.v1beta1.Service/Status';

const post = (body: unknown, headers: Record<string, string> = {}, search = '') =>
  ask(`${gateway.url}/batch${search}`, {
    method: 'POST',
    headers,
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });

it('POST /batch answers every query like a single one, all at one height', async () => {
  const paths = ['/ixo/entity/params', '/ixo/claims/claims?pagination.limit=2', '/ixo/nope'];
  const { status, json, headers, text } = await post({ queries: paths });
  expect(status).toBe(200);
  expect(json.height).toBe('100');
  expect(headers.get('x-block-height')).toBe('100');
  const results: { status: number; body: object }[] = json.results;
  expect(results.map((result) => result.status)).toEqual([200, 200, 404]);
  for (const path of paths.slice(0, 2)) expect(text).toContain((await gateway.get(path)).text);
});

it('POST /batch uses one height while new blocks arrive', async () => {
  const heights = new Set<number | undefined>();
  node.interrupt(({ method, height }) => {
    if (!method.startsWith('ixo.')) return undefined;
    heights.add(height);
    node.blocks.latest += 1;
    return undefined;
  });
  const queries = ['/ixo/token/params', '/ixo/claims/params', '/ixo/entity'];
  const { json } = await post({ queries });
  node.interrupt();
  expect([...heights].map(String)).toEqual([json.height]);
});

it('POST /batch uses the given height', async () => {
  for (const height of [60, '60']) {
    const { json } = await post({ height, queries: [{ path: '/ixo/entity/params' }] });
    expect(json.height).toBe('60');
  }
  const conflict = await post({ height: 60, queries: ['/ixo/entity/params?height=61'] });
  expect(conflict.json.results[0]).toMatchObject({ status: 400, body: { code: 3 } });
  const future = await post({ height: 9999, queries: ['/ixo/entity/params'] });
  expect(future.json.results[0]).toMatchObject({ status: 400, body: { code: 3 } });
});

it.each(['x-cosmos-block-height', 'grpc-metadata-x-cosmos-block-height', '?height='])(
  'POST /batch uses the height of %s',
  async (name) => {
    const queries = ['/ixo/entity/params'];
    const send = (body: object) =>
      name === '?height=' ? post(body, {}, '?height=60') : post(body, { [name]: '60' });
    const { json } = await send({ queries });
    expect(json).toMatchObject({ height: '60', results: [{ status: 200 }] });
    const conflict = await send({ height: 61, queries });
    expect(conflict).toMatchObject({ status: 400, json: { code: 3 } });
    expect(conflict.json.message).toContain('conflicting heights');
  },
);

it('POST /batch waits for X-Min-Block-Height, and answers from that height on', async () => {
  const { latest } = node.blocks;
  const before = node.countCalls(STATUS);
  const waiting = post(
    { queries: ['/ixo/entity/params'] },
    { 'x-min-block-height': String(latest + 1) },
  );
  await expect.poll(() => node.countCalls(STATUS)).toBeGreaterThan(before + 2);
  node.blocks.latest = latest + 1;
  const { json } = await waiting;
  expect(json).toMatchObject({ height: String(latest + 1), results: [{ status: 200 }] });
});

it('POST /batch answers 504 if the block does not arrive in time', async () => {
  const { latest } = node.blocks;
  const headers = { 'x-min-block-height': String(latest + 1), 'grpc-timeout': '100m' };
  const late = await post({ queries: ['/ixo/entity/params'] }, headers);
  expect(late).toMatchObject({ status: 504, json: { code: 4 } });
});

it('POST /batch uses one height with GATEWAY_COMPAT=node too', async () => {
  const compat = await startGateway([node], { GATEWAY_COMPAT: 'node' });
  try {
    const { json } = await ask(`${compat.url}/batch`, {
      method: 'POST',
      headers: { 'grpc-metadata-x-cosmos-block-height': '60' },
      body: JSON.stringify({ queries: ['/cosmos/base/node/v1beta1/status'] }),
    });
    expect(json).toMatchObject({ height: '60', results: [{ body: { height: '60' } }] });
  } finally {
    await compat.close();
  }
});

it('POST /batch returns 504 for queries that are left when it has taken four times as long as one', async () => {
  const limited = await startGateway([node], {
    GATEWAY_BATCH_LIMIT: '100',
    GATEWAY_TIMEOUT_SECONDS: '1',
  });
  let asked = 0;
  node.interrupt(({ method }) => {
    if (!method.endsWith('Query/Claim')) return undefined;
    asked += 1;
    return new Promise(() => {});
  });
  try {
    const queries = Array.from({ length: 100 }, (_, i) => `/ixo/claims/claim/${i}`);
    const body = JSON.stringify({ queries });
    const { json } = await ask(`${limited.url}/batch`, { method: 'POST', body });
    const statuses = json.results.map(({ status }: { status: number }) => status);
    expect(statuses).toEqual(Array(100).fill(504));
    expect(asked).toBeLessThan(100);
    expect(json.results[99].body.message).toContain('send fewer queries');
  } finally {
    node.interrupt();
    await limited.close();
  }
});

it.each([
  ['no JSON', 'queries'],
  ['no queries', {}],
  ['an empty list', { queries: [] }],
  ['too many', { queries: Array.from({ length: 6 }, () => '/ixo/entity/params') }],
  ['an address of another host', { queries: ['https://example.com/'] }],
  ['a height that is none', { height: 'now', queries: ['/ixo/entity/params'] }],
  ['an unknown field', { queries: ['/ixo/entity/params'], writes: [] }],
])('answers 400 to %s', async (_, body) => {
  const { status, json } = await post(body);
  expect({ status, code: json.code }).toEqual({ status: 400, code: 3 });
  expect(json.message).not.toBe('');
});

it('is reached by POST alone', async () => {
  const { status, headers } = await gateway.get('/batch');
  expect(status).toBe(405);
  expect(headers.get('allow')).toBe('POST, OPTIONS');
});

it('is in the OpenAPI document, with its body and its results', async () => {
  const { json } = await gateway.get('/docs/openapi.json');
  const { post: operation } = json.paths['/batch'];
  expect(operation.summary).toContain('5 queries');
  const { schema } = operation.requestBody.content['application/json'];
  expect(Object.keys(schema.properties)).toEqual(['height', 'queries']);
  expect(schema.required).toEqual(['queries']);
  const result = await validate(json);
  expect(result.valid ? '' : compileErrors(result)).toBe('');
});
