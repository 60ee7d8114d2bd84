import { once } from 'node:events';
import { request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import { startTestNode, type TestNode } from '../../demo-chain/test/support/test-node.js';
import { ENTITY_PARAMS, largeEntityParams } from './support/entity-params.js';
import { ask, type RunningGateway, startGateway } from './support/running-gateway.js';

const PARAMS = '/ixo/entity/params';
let node: TestNode;
let gateway: RunningGateway;

beforeAll(async () => {
  node = await startTestNode();
  gateway = await startGateway([node], { GATEWAY_REQUEST_TIMEOUT_SECONDS: '1' });
});

afterAll(async () => {
  await gateway.close();
  await node.close();
});

async function open(): Promise<Socket> {
  const { hostname, port } = new URL(gateway.url);
  const socket = connect(Number(port), hostname);
  socket.on('error', () => {});
  await once(socket, 'connect');
  return socket;
}

async function sayRaw(text: string | Buffer): Promise<string> {
  const socket = await open();
  let heard = '';
  socket.on('data', (piece) => {
    heard += piece;
  });
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.write(text);
  await closed;
  return heard;
}

it('closes connections that never finish a request', async () => {
  const loris = await Promise.all(Array.from({ length: 100 }, open));
  for (const socket of loris)
    socket.write('GET /ixo/entity/params HTTP/1.1\r\nHost: x\r\nX-Slow: ');
  const drip = setInterval(() => {
    for (const socket of loris) if (socket.writable) socket.write('a');
  }, 100);
  const closed = Promise.all(
    loris.map((socket) => new Promise((resolve) => socket.resume().once('close', resolve))),
  );
  expect((await gateway.get(PARAMS)).status).toBe(200);
  await closed;
  clearInterval(drip);
  expect((await gateway.get(PARAMS)).status).toBe(200);
});

it('closes connections whose body never arrives', async () => {
  const heard = await sayRaw(
    'POST /batch HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"queries":',
  );
  expect(heard).toMatch(/^HTTP\/1.1 4\d\d /);
});

it.each([
  ['', PARAMS, '"nftContractAddress"'],
  ['with a query', `${PARAMS}?height=60`, 'X-Block-Height: 60'],
  ['without a path', '', '"docs":"/docs"'],
])('accepts a whole URL in the request line %s', async (_, path, expected) => {
  const head = `GET ${gateway.url}${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`;
  const answer = await sayRaw(head);
  expect(answer).toMatch(/^HTTP\/1.1 200 /);
  expect(answer).toContain(expected);
});

it('refuses an address of a megabyte', async () => {
  const heard = await sayRaw(`GET /${'a'.repeat(1024 * 1024)} HTTP/1.1\r\nHost: x\r\n\r\n`);
  // What is left unread may make the other side close before the answer was read.
  expect(heard === '' || heard.startsWith('HTTP/1.1 431 ')).toBe(true);
  expect((await gateway.get(`/${'a'.repeat(10_000)}`)).status).toBe(414);
  expect((await gateway.get(PARAMS)).status).toBe(200);
});

it.each([
  ['is not HTTP', '\u0000\u0001\u0002\r\n\r\n'],
  ['has too large headers', `GET / HTTP/1.1\r\nHost: x\r\nX: ${'a'.repeat(64 * 1024)}\r\n\r\n`],
  [
    'smuggles',
    'GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n',
  ],
])('answers a request that %s with JSON and closes the connection', async (_, text) => {
  const heard = await sayRaw(text);
  expect(heard).toMatch(/^HTTP\/1.1 4(00|31) [\s\S]*\{"code":3,/);
});

it('closes connections even if the client ignores the response', async () => {
  const socket = await open();
  socket.allowHalfOpen = true;
  const closed = new Promise((resolve) => socket.resume().once('close', resolve));
  const drip = setInterval(() => socket.writable && socket.write('a'), 100);
  socket.write('GET / HTTP/1.1\r\nX-Slow: ');
  await closed;
  clearInterval(drip);
});

it.each([
  '/%',
  '/ixo/entity/%zz',
  '/ixo/entity/%00',
  '//',
  '/ixo/entity/%F0%9F%92%A9',
  `/ixo/claims/claims?${'a=b&'.repeat(1000)}`,
  '/ixo/claims/claims?pagination.key=%%%',
  '/ixo/claims/claims?__proto__.x=1&constructor=2',
])('survives a strange address (%#)', async (path) => {
  const { status, json } = await gateway.get(path);
  expect(status).toBeLessThan(500);
  expect(json).toBeTypeOf('object');
});

/** The heap after a full collection. */
function usedMemory(): number {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  return process.memoryUsage().heapUsed;
}

/** Asks for many paths over a few connections that stay open. */
async function askMany(from: number, count: number): Promise<void> {
  const { hostname, port } = new URL(gateway.url);
  const PIPELINED = 50;
  await Promise.all(
    Array.from({ length: 4 }, async (_, client) => {
      const socket = await open();
      let queryService = 0;
      let wanted = 0;
      socket.on('data', (piece: Buffer) => {
        queryService += piece.toString('latin1').split('HTTP/1.1 404').length - 1;
        if (queryService >= wanted) socket.emit('answered');
      });
      for (let i = client; i < count; i += 4 * PIPELINED) {
        const paths = Array.from({ length: PIPELINED }, (__, n) => `/x${from + i + 4 * n}/y`);
        wanted += paths.length;
        const answered = once(socket, 'answered');
        socket.write(
          paths.map((path) => `GET ${path} HTTP/1.1\r\nHost: ${hostname}:${port}\r\n\r\n`).join(''),
        );
        await answered;
      }
      socket.destroy();
    }),
  );
}

it('the gateway keeps no memory of unknown paths', { timeout: 240_000 }, async () => {
  (gateway.log as unknown[]).length = 0;
  await askMany(0, 5_000);
  (gateway.log as unknown[]).length = 0;
  const before = usedMemory();
  for (let round = 0; round < scale(10, 3); round += 1) {
    await askMany(10_000 * (round + 1), 10_000);
    (gateway.log as unknown[]).length = 0;
  }
  expect(usedMemory() - before).toBeLessThan(8 * 1024 * 1024);
  const { text } = await gateway.get('/metrics');
  expect(text.split('\n').length).toBeLessThan(200);
});

it('lets others through while it writes large replies', async () => {
  node.interrupt(({ method, height = 100 }) =>
    method === ENTITY_PARAMS ? { message: largeEntityParams(240_000), height } : undefined,
  );
  const { text } = await gateway.get(`${PARAMS}?height=1`);
  expect(text.length).toBeGreaterThan(240_000);
  node.interrupt();
});

it('forgets a client that leaves in the middle of an answer', async () => {
  node.interrupt(({ method, height = 100 }) =>
    method === ENTITY_PARAMS ? { message: largeEntityParams(8_000_000), height } : undefined,
  );
  await Promise.all(
    Array.from({ length: 10 }, async () => {
      const socket = await open();
      socket.write(`GET ${PARAMS}?height=2 HTTP/1.1\r\nHost: x\r\n\r\n`);
      await once(socket, 'data');
      socket.destroy();
    }),
  );
  node.interrupt();
  expect((await gateway.get('/health')).status).toBe(200);
});

it('sends a large reply to a slow reader without keeping others waiting', async () => {
  node.interrupt(({ method, height = 100 }) =>
    method === ENTITY_PARAMS ? { message: largeEntityParams(8_000_000), height } : undefined,
  );
  const slow = await new Promise<number>((resolve, reject) => {
    request(`${gateway.url}${PARAMS}?height=3`, async (response) => {
      let size = 0;
      for await (const piece of response) {
        size += piece.length;
        if (size < 1_000_000) await delay(1);
      }
      resolve(size);
    })
      .once('error', reject)
      .end();
  });
  node.interrupt();
  expect(slow).toBeGreaterThan(8_000_000);
  expect((await ask(`${gateway.url}/health`)).status).toBe(200);
});
