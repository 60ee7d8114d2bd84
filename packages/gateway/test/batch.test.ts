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

const post = (body: unknown, headers: Record<string, string> = {}) =>
  ask(`${gateway.url}/batch`, {
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
