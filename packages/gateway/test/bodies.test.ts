import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
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

/** Sends a body in chunks of one size, but not its end, and reads until the gateway closes the connection. */
async function sendChunks(size: number, count: number, end = ''): Promise<string> {
  const { port, hostname } = new URL(gateway.url);
  const socket = connect(Number(port), hostname);
  const head = 'POST /a/check HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n';
  const chunk = `${size.toString(16)}\r\n${' '.repeat(size)}\r\n`;
  socket.write(`${head}Connection: close\r\n\r\n${chunk.repeat(count)}${end}`);
  return text(socket);
}

it('refuses a body in tiny chunks before its end, and closes the connection', async () => {
  const response = await sendChunks(1, 2000);
  expect(response).toMatch(/^HTTP\/1\.1 413 /);
  expect(response).toContain('the body arrives in too many small chunks');
});

it('accepts a body in 5000 chunks of 40 bytes', async () => {
  const response = await sendChunks(40, 5000, 'd\r\n{"text":"hi"}\r\n0\r\n\r\n');
  expect(response).toMatch(/^HTTP\/1\.1 200 /);
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
