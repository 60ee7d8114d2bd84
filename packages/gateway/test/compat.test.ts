import { afterAll, beforeAll, expect, it } from 'vitest';
import { startTestNode, type TestNode } from '../../demo-chain/test/support/test-node.js';
import { ask, type RunningGateway, startGateway } from './support/running-gateway.js';

const PARAMS = '/ixo/entity/params';
const NOT_IMPLEMENTED = { code: 12, message: 'Not Implemented', details: [] };
let node: TestNode;
let gateway: RunningGateway;

beforeAll(async () => {
  node = await startTestNode();
  node.blocks.earliest = 50;
  gateway = await startGateway([node], { GATEWAY_COMPAT: 'node' });
});

afterAll(async () => {
  await gateway.close();
  await node.close();
});

it.each([
  ['GET', '/ixo/nothing/here/at/all'],
  ['GET', `${PARAMS}/`],
  ['DELETE', PARAMS],
  ['HEAD', PARAMS],
  ['OPTIONS', PARAMS],
])('answers %s %s with 501, as a node does', async (method, path) => {
  const { status, json } = await ask(gateway.url + path, { method });
  expect(status).toBe(501);
  if (method !== 'HEAD') expect(json).toEqual(NOT_IMPLEMENTED);
});

it('sends only the body and the height', async () => {
  const { status, headers } = await gateway.get('/ixo/claims/claims', {
    'accept-encoding': 'gzip',
  });
  expect(status).toBe(200);
  expect(headers.get('grpc-metadata-x-cosmos-block-height')).toBe('100');
  for (const name of ['x-block-height', 'etag', 'content-encoding', 'cache-control', 'vary']) {
    expect(headers.has(name), name).toBe(false);
  }
});

it('ignores ?height= and ?watch', async () => {
  const { status, headers } = await gateway.get(`${PARAMS}?height=60&watch`);
  expect(status).toBe(200);
  expect(headers.get('grpc-metadata-x-cosmos-block-height')).toBe('100');
});

it('x-cosmos-block-height: reads the header', async () => {
  const { headers } = await gateway.get(PARAMS, { 'x-cosmos-block-height': '60' });
  expect(headers.get('grpc-metadata-x-cosmos-block-height')).toBe('60');
});

it('forwards the node’s error for heights it does not have', async () => {
  const future = await gateway.get(PARAMS, { 'x-cosmos-block-height': '5000' });
  expect(future.json.message).toContain('cannot query with height in the future');
  const pruned = await gateway.get(PARAMS, { 'x-cosmos-block-height': '2' });
  expect(pruned.status).not.toBe(404);
});

it('queries the node even for services it does not serve', async () => {
  const { status } = await gateway.get('/ixo/bonds/params');
  expect(status).toBe(501);
  expect(node.countCalls('ixo.bonds.v1beta1.Query/Params')).toBe(1);
});

it('still refuses to write, and still answers once for many', async () => {
  await Promise.all(Array.from({ length: 20 }, () => gateway.get('/ixo/token/params')));
  expect(node.countCalls('ixo.token.v1beta1.Query/Params')).toBe(1);
});
