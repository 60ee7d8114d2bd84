import { connect } from 'node:net';
import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { startTestNode, type TestNode } from '../../demo-chain/test/support/test-node.js';
import { ENTITY_PARAMS, entityParams, largeEntityParams } from './support/entity-params.js';
import { ask, type RunningGateway, startGateway } from './support/running-gateway.js';

const WATCH = '/ixo/entity/params?watch';
const cleanups: (() => unknown)[] = [];
let node: TestNode;
let gateway: RunningGateway;
let sequence: number;

beforeEach(async () => {
  node = await startTestNode();
  sequence = 1;
  node.interrupt(({ method }) =>
    method === ENTITY_PARAMS
      ? { message: entityParams(sequence), height: node.blocks.latest }
      : undefined,
  );
  gateway = await startGateway([node], {
    GATEWAY_WATCHERS: '6',
    GATEWAY_WATCH_STALL_SECONDS: '3',
  });
});

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
  await gateway.close();
  await node.close();
});

interface Frame {
  readonly event: string;
  readonly id: string;
  readonly data: string;
}

/** Watches a query and collects the events. */
async function watch(path = WATCH): Promise<{ frames: Frame[]; stop: () => void }> {
  const leaving = new AbortController();
  cleanups.push(() => leaving.abort());
  const response = await fetch(gateway.url + path, { signal: leaving.signal });
  expect(response.status).toBe(200);
  expect(response.headers.get('content-type')).toBe('text/event-stream');
  const frames: Frame[] = [];
  const read = async () => {
    let text = '';
    for await (const piece of response.body ?? []) {
      text += Buffer.from(piece).toString();
      const deps = text.split('\n\n');
      text = deps.pop() ?? '';
      frames.push(...deps.filter((part) => !part.startsWith(':')).map(readFrame));
    }
  };
  void read().catch(() => {});
  return { frames, stop: () => leaving.abort() };
}

function readFrame(text: string): Frame {
  const field = (name: string) => new RegExp(`^${name}: (.*)$`, 'm').exec(text)?.[1] ?? '';
  return { event: field('event'), id: field('id'), data: field('data') };
}

const sequences = (frames: readonly Frame[]) =>
  frames.map(({ data }) => JSON.parse(data).params.createSequence);

const watchers = async () =>
  /^sibyl_gateway_watchers (\d+)$/m.exec((await gateway.get('/metrics')).text)?.[1];

it('?watch sends the current state, then every change', async () => {
  const { frames } = await watch();
  await expect.poll(() => frames.length).toBe(1);
  expect(frames[0]).toMatchObject({ event: 'update', id: '100' });
  expect(frames[0]?.data).toBe((await gateway.get('/ixo/entity/params')).text);
  const before = node.countCalls(ENTITY_PARAMS);
  node.blocks.latest = 101;
  await expect.poll(() => node.countCalls(ENTITY_PARAMS)).toBeGreaterThan(before);
  sequence = 2;
  node.blocks.latest = 102;
  await expect.poll(() => frames.length).toBe(2);
  expect(frames[1]?.id).toBe('102');
  expect(sequences(frames)).toEqual(['1', '2']);
});

it('?watch queries the node once per block for all clients of a query', async () => {
  const all = await Promise.all([watch(), watch(), watch()]);
  for (const { frames } of all) await expect.poll(() => frames.length).toBe(1);
  const before = node.countCalls(ENTITY_PARAMS);
  sequence = 2;
  node.blocks.latest = 101;
  for (const { frames } of all) await expect.poll(() => frames.length).toBe(2);
  expect(node.countCalls(ENTITY_PARAMS)).toBe(before + 1);
});

it('?watch sends an error and continues', async () => {
  const { frames } = await watch();
  await expect.poll(() => frames.length).toBe(1);
  let isBroken = true;
  node.interrupt(({ method }) => {
    if (method !== ENTITY_PARAMS) return undefined;
    if (isBroken) throw new GrpcError(GrpcCode.internal, 'a bad moment');
    return { message: entityParams(1), height: node.blocks.latest };
  });
  node.blocks.latest = 101;
  await expect.poll(() => frames.length).toBe(2);
  expect(frames[1]?.event).toBe('error');
  expect(JSON.parse(frames[1]?.data ?? '')).toMatchObject({ code: 13, message: 'a bad moment' });
  isBroken = false;
  node.blocks.latest = 102;
  await expect.poll(() => frames.length).toBe(3);
  expect(frames[2]?.event).toBe('update');
});

it('?watch continues with a node that came up after it began', async () => {
  const { blocks } = node;
  const gone = await startTestNode({ blocks });
  await gone.close();
  await gateway.close();
  gateway = await startGateway([node, gone], { GATEWAY_METRICS_PORT: '0' });
  const { frames } = await watch();
  await expect.poll(() => frames.length).toBe(1);
  const later = await startTestNode({ blocks, port: gone.port });
  cleanups.push(() => later.close());
  later.interrupt(({ method }) =>
    method === ENTITY_PARAMS ? { message: entityParams(2), height: blocks.latest } : undefined,
  );
  const serving = async () => (await gateway.health()).json.details.schemas[0].nodes;
  await expect.poll(serving).toEqual([node.url, later.url]);
  await node.close();
  blocks.latest = 101;
  await expect.poll(() => frames.at(-1)).toMatchObject({ event: 'update', id: '101' });
  expect(sequences(frames)).toEqual(['1', '2']);
});

it('?watch limits the clients, and frees the slots of those that disconnect', async () => {
  const all = await Promise.all([watch(), watch(), watch()]);
  expect(await watchers()).toBe('3');
  const refused = await ask(gateway.url + WATCH);
  expect(refused.status).toBe(429);
  for (const { stop } of all) stop();
  await expect.poll(watchers).toBe('0');
  await watch();
});

it('answers 429 to ?watch of a caller that watches too much, and lets others watch', async () => {
  await gateway.close();
  gateway = await startGateway([node], {
    GATEWAY_WATCHERS_PER_CALLER: '2',
    GATEWAY_TRUST_PROXY: '1',
  });
  const from = (address: string) =>
    fetch(gateway.url + WATCH, { headers: { 'x-forwarded-for': address } });
  const first = [await from('2001:db8:1:2::1'), await from('2001:db8:1:2:ffff::2')];
  expect(first.map(({ status }) => status)).toEqual([200, 200]);
  const refused = await from('2001:db8:1:2::3');
  expect(refused.status).toBe(429);
  expect(refused.headers.get('retry-after')).toBe('30');
  expect(await refused.json()).toMatchObject({ code: 8, details: [] });
  const other = await from('2001:db8:1:3::1');
  expect(other.status).toBe(200);
  await first[0]?.body?.cancel();
  await expect.poll(async () => (await from('2001:db8:1:2::3')).status).toBe(200);
});

it('refuses to watch one height, or an unknown route', async () => {
  expect((await gateway.get(`${WATCH}&height=60`)).status).toBe(400);
  expect((await gateway.get('/ixo/nope?watch')).status).toBe(404);
  expect((await gateway.get('/ixo/entity/params?watch=false')).json).toHaveProperty('params');
});

it('?watch buffers nothing for a client that does not read', async () => {
  let version = 0;
  node.interrupt(({ method }) => {
    if (method !== ENTITY_PARAMS) return undefined;
    version += 1;
    return { message: largeEntityParams(2_000_000 + version), height: node.blocks.latest };
  });
  const { hostname, port } = new URL(gateway.url);
  const socket = connect(Number(port), hostname).pause();
  cleanups.push(() => socket.destroy());
  socket.write(`GET ${WATCH} HTTP/1.1\r\nHost: x\r\n\r\n`);
  await expect.poll(() => version).toBeGreaterThan(0);
  for (let i = 0; i < 20; i += 1) {
    node.blocks.latest += 1;
    const height = String(node.blocks.latest);
    await expect.poll(async () => (await gateway.get('/health')).json.latestHeight).toBe(height);
  }
  // A client that does not read causes no queries.
  expect(version).toBeLessThan(10);
  await expect.poll(watchers).toBe('0');
});

it('ends when the gateway does', async () => {
  const response = await fetch(gateway.url + WATCH);
  const text = response.text();
  await expect.poll(watchers).toBe('1');
  await gateway.close();
  expect(await text).toContain('event: update');
  gateway = await startGateway([node]);
});
