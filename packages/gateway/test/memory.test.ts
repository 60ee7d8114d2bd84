import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { generateSigner, mintDelegation } from '@sibyl/ucan';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startTestNode, type TestNode } from '../../demo-chain/test/support/test-node.js';
import { ENTITY_PARAMS, largeEntityParams } from './support/entity-params.js';
import { type RunningGateway, startGateway } from './support/running-gateway.js';

const PARAMS = '/ixo/entity/params';
const CLAIM_LIST = 'ixo.claims.v1beta1.Query/ClaimList';
/** Two bytes for each claim, whose JSON has all its fields. */
const emptyClaims = (count: number) => Buffer.from('0a00'.repeat(count), 'hex');
/** More than the system buffers for a connection, and six of them fit into the memory of one caller. */
const REPLY_BYTES = 10_000_000;
const FITTING = 6;
let node: TestNode;
let gateway: RunningGateway;
let sockets: Socket[];

beforeEach(async () => {
  sockets = [];
  node = await startTestNode();
  node.interrupt(({ method, height = node.blocks.latest }) =>
    method === ENTITY_PARAMS
      ? { message: largeEntityParams(REPLY_BYTES + height), height }
      : undefined,
  );
  gateway = await startGateway([node], {
    GATEWAY_CACHE_SIZE: '0',
    GATEWAY_TRUST_PROXY: '1',
    GATEWAY_WATCH_STALL_SECONDS: '600',
  });
});

afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await gateway.close();
  await node.close();
});

/** Sends a request, reads no more than the status, and leaves the rest. */
async function stalledStatus(head: string, address = '198.51.100.1', body = ''): Promise<number> {
  const socket = await send(head, address, body);
  const [piece] = (await once(socket, 'data')) as [Buffer];
  socket.pause();
  return Number(piece.toString('latin1').split(' ', 2)[1]);
}

async function send(head: string, address: string, body = ''): Promise<Socket> {
  const { hostname, port } = new URL(gateway.url);
  const socket = connect(Number(port), hostname).on('error', () => {});
  sockets.push(socket);
  await once(socket, 'connect');
  socket.write(`${head}\r\nHost: x\r\nX-Forwarded-For: ${address}\r\n\r\n${body}`);
  return socket;
}

describe('the memory of replies that a client does not read', { timeout: 180_000 }, () => {
  it('is limited for each caller with 429, and free again when the client leaves', async () => {
    const statuses: number[] = [];
    for (let height = 1; height <= FITTING + 2; height += 1) {
      statuses.push(await stalledStatus(`GET ${PARAMS}?height=${height} HTTP/1.1`));
    }
    expect(statuses).toEqual([...Array(FITTING).fill(200), 429, 429]);
    const other = await stalledStatus(`GET ${PARAMS}?height=50 HTTP/1.1`, '198.51.100.2');
    expect(other).toBe(200);
    for (const socket of sockets.splice(0)) socket.destroy();
    const again = () => stalledStatus(`GET ${PARAMS}?height=60 HTTP/1.1`);
    await expect.poll(again, { timeout: 20_000 }).toBe(200);
  });

  it('is limited for each address, however many DIDs it uses', async () => {
    await gateway.close();
    gateway = await startGateway([node], { GATEWAY_CACHE_SIZE: '0', GATEWAY_AUTH: 'ucan' });
    const statuses: number[] = [];
    for (let height = 1; height <= FITTING + 2; height += 1) {
      const { ok, error } = mintDelegation({
        signer: generateSigner(),
        audience: gateway.gateway.did ?? '',
        capabilities: [{ can: 'chain/query', with: 'ixo:chain' }],
        expiration: Math.floor(Date.now() / 1000) + 300,
      });
      if (error) throw new Error(error.detail);
      const credentials = `Authorization: Bearer ${ok.token}\r\nX-Auth-Type: ucan`;
      const head = `GET ${PARAMS}?height=${height} HTTP/1.1\r\n${credentials}`;
      statuses.push(await stalledStatus(head));
    }
    expect(statuses).toEqual([...Array(FITTING).fill(200), 429, 429]);
  });

  it('counts a reply once that many clients are sent', async () => {
    await gateway.close();
    gateway = await startGateway([node], { GATEWAY_TRUST_PROXY: '1' });
    for (let i = 0; i < FITTING + 4; i += 1) {
      expect(await stalledStatus(`GET ${PARAMS}?height=1 HTTP/1.1`)).toBe(200);
    }
  });

  it('ends a ?watch whose update does not fit', async () => {
    for (let i = 0; i < FITTING; i += 1) {
      expect(await stalledStatus(`GET ${PARAMS}?watch HTTP/1.1`)).toBe(200);
      const watching = String(i + 1);
      const held = async () =>
        /^sibyl_gateway_watchers (\d+)$/m.exec((await gateway.get('/metrics')).text)?.[1];
      await expect.poll(held).toBe(watching);
      const calls = node.countCalls(ENTITY_PARAMS);
      expect(calls).toBe(i + 1);
      node.blocks.latest += 1;
      const height = String(node.blocks.latest);
      const seen = async () => (await gateway.get('/health')).json.latestHeight;
      await expect.poll(seen).toBe(height);
    }
    const last = await send(`GET ${PARAMS}?watch HTTP/1.1`, '198.51.100.1');
    last.resume();
    await once(last, 'close');
  });
});

describe('the memory of the results of POST /batch', { timeout: 180_000 }, () => {
  it('is reserved before the last one has arrived, and free again when the client leaves', async () => {
    const gate = Promise.withResolvers<undefined>();
    node.interrupt(({ method, height = node.blocks.latest }) => {
      if (method.startsWith('ixo.claims.')) return gate.promise;
      return method === ENTITY_PARAMS
        ? { message: largeEntityParams(REPLY_BYTES), height }
        : undefined;
    });
    const queries = [PARAMS, `${PARAMS}?a`, `${PARAMS}?b`, '/ixo/claims/params'];
    const body = JSON.stringify({ queries });
    const head = `POST /batch HTTP/1.1\r\nContent-Length: ${body.length}`;
    const post = () => stalledStatus(head, '198.51.100.1', body);
    const batches = [post(), post(), post()];
    expect(await Promise.race(batches)).toBe(429);
    gate.resolve(undefined);
    await Promise.all(batches);
    for (const socket of sockets.splice(0)) socket.destroy();
    const both = async () => Promise.all([post(), post()]);
    await expect.poll(both, { timeout: 20_000 }).toEqual([200, 200]);
  });
});

describe('the memory of request bodies', () => {
  it('is reserved before they are read, and limited for each caller with 429', async () => {
    const head = 'POST /batch HTTP/1.1\r\nContent-Length: 1048576';
    for (let i = 0; i < 16; i += 1) await send(head, '198.51.100.1');
    const refused = () => stalledStatus(head, '198.51.100.1');
    await expect.poll(refused, { timeout: 10_000 }).toBe(429);
    expect((await gateway.get('/health')).status).toBe(200);
  });
});

it('a reply that would become more than 8 MB of JSON is refused', async () => {
  const small = await startGateway([node], { GATEWAY_MAX_REPLY_SIZE: '1mb' });
  node.interrupt(({ method, height = node.blocks.latest }) =>
    method === CLAIM_LIST ? { message: emptyClaims(100_000), height } : undefined,
  );
  const { status, json } = await small.get('/ixo/claims/claims');
  await small.close();
  expect(status).toBe(429);
  expect(json.message).toBe('the JSON of the reply exceeds the limit of 8388608 bytes');
});
