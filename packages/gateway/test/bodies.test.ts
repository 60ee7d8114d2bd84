import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startTestNode, type TestNode } from '../../demo-chain/test/support/test-node.js';
import { ask, type RunningGateway, startGateway } from './support/running-gateway.js';
import { smallDescriptors } from './support/small-descriptors.js';

const folder = mkdtempSync(join(tmpdir(), 'sibyl-descriptors-'));
let node: TestNode;
let gateway: RunningGateway;

beforeAll(async () => {
  const path = join(folder, 'descriptors.bin');
  writeFileSync(
    path,
    smallDescriptors([
      { name: 'cosmos.tx.v1beta1.Service/BroadcastTx', http: 'post', path: '/tx/txs' },
      { name: 'a.Query/Check', http: 'post', path: '/a/check' },
    ]),
  );
  node = await startTestNode({ over: 'rpc+http' });
  node.interrupt(({ method, request }) =>
    method === 'a.Query/Check' ? { message: request, height: 100 } : undefined,
  );
  gateway = await startGateway([node], { GATEWAY_DESCRIPTORS: path });
});

afterAll(async () => {
  await gateway.close();
  await node.close();
  rmSync(folder, { recursive: true });
});

const post = (path: string, body: string, headers: Record<string, string> = {}) =>
  ask(gateway.url + path, { method: 'POST', body, headers });

it('refuses POST /cosmos/tx/v1beta1/txs and names an alternative', async () => {
  const { status, json } = await post('/tx/txs', '{"text":"signed"}');
  expect({ status, code: json.code }).toEqual({ status: 403, code: 7 });
  expect(json.message).toContain('sign the transaction with your own key');
  expect(node.countCalls('cosmos.tx.v1beta1.Service/BroadcastTx')).toBe(0);
});

it('binds the request from the body', async () => {
  const { status, text } = await post('/a/check', '{"text":"hi"}');
  expect({ status, text }).toEqual({ status: 200, text: '{"text":"hi"}' });
});

it('refuses a body that is not JSON or too large', async () => {
  expect((await post('/a/check', '{"text":')).status).toBe(400);
  expect((await post('/a/check', '{"nothing":"here"}')).status).toBe(400);
  expect((await post('/a/check', ' '.repeat(1_100_000))).status).toBe(413);
});

it('is reached by POST alone', async () => {
  const { status, headers } = await gateway.get('/a/check');
  expect({ status, allow: headers.get('allow') }).toEqual({ status: 405, allow: 'POST, OPTIONS' });
});

it('answers a POST in full if the client has the same reply already', async () => {
  const first = await post('/a/check', '{"text":"hi"}');
  const headers = { 'if-none-match': first.headers.get('etag') ?? '*' };
  expect(await post('/a/check', '{"text":"hi"}', headers)).toMatchObject({
    status: 200,
    text: first.text,
  });
});
