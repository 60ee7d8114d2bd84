import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import { ManualBlocks } from '../../demo-chain/test/support/manual-blocks.js';
import {
  startTestNode,
  type TestNode,
  type TestNodeOptions,
} from '../../demo-chain/test/support/test-node.js';
import { ENTITY_PARAMS, entityParams } from './support/entity-params.js';
import { ask, type RunningGateway, startGateway } from './support/running-gateway.js';

const PARAMS = '/ixo/entity/params';
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** A gateway that polls too rarely to see a block by chance. */
async function start(options: TestNodeOptions, env: Record<string, string> = {}) {
  const node = await startTestNode(options);
  cleanups.push(() => node.close());
  const gateway = await startGateway([node], { GATEWAY_BLOCK_POLL_MS: '60000', ...env });
  cleanups.push(() => gateway.close());
  return { node, gateway };
}

const BLOCKS = scale(60, 20);
/** On a busy machine, the gateway may learn of a block after the client. Without asking, it would know none of them. */
const FRESH_SHARE = scale(0.95, 0.75);

/**
 * Writes a value in each block, learns that from the node, and then reads it through the gateway, while others read all
 * the time; returns how many reads had the value.
 */
async function countFreshReads(
  { node, gateway }: { node: TestNode; gateway: RunningGateway },
  readHeaders: () => Record<string, string>,
): Promise<number> {
  let written = 0;
  node.interrupt(({ method, height = node.blocks.latest }) =>
    method === ENTITY_PARAMS ? { message: entityParams(written), height } : undefined,
  );
  const witness = await startTestNode();
  cleanups.push(() => witness.close());
  let isOver = false;
  const reader = async () => {
    while (!isOver) await gateway.get(PARAMS);
  };
  const readers = [reader(), reader()];
  let fresh = 0;
  for (let i = 1; i <= BLOCKS; i += 1) {
    await sleep(30 + Math.random() * 30);
    written = i;
    node.blocks.latest += 1;
    // A client learns about its transaction over the network.
    await ask(witness.url.replace('grpc', 'http')).catch(() => undefined);
    const { json } = await gateway.get(PARAMS, readHeaders());
    if (json.params.createSequence === String(i)) fresh += 1;
  }
  isOver = true;
  await Promise.all(readers);
  return fresh;
}

describe.each<[string, TestNodeOptions]>([
  ['gRPC', {}],
  ['RPC', { over: 'rpc+http' }],
  ['RPC without subscriptions', { over: 'rpc+http', rpc: { hasWebSocket: false } }],
])('a read after a write, with a transaction per block, over %s', (_, options) => {
  it('is fresh in nearly all cases without a header', { timeout: 120_000 }, async () => {
    const fresh = await countFreshReads(await start(options), () => ({}));
    expect(fresh).toBeGreaterThanOrEqual(FRESH_SHARE * BLOCKS);
  });

  it('is always fresh with X-Min-Block-Height', { timeout: 120_000 }, async () => {
    const started = await start(options);
    const headers = () => ({ 'x-min-block-height': String(started.node.blocks.latest) });
    expect(await countFreshReads(started, headers)).toBe(BLOCKS);
  });
});

describe('X-Min-Block-Height', () => {
  it('waits for the block, and answers from it on', async () => {
    const { node, gateway } = await start({});
    const waiting = gateway.get(PARAMS, { 'x-min-block-height': '102' });
    await gateway.get(PARAMS);
    node.blocks.latest = 101;
    await gateway.get(PARAMS);
    node.blocks.latest = 102;
    const { status, headers } = await waiting;
    expect({ status, height: headers.get('x-block-height') }).toEqual({
      status: 200,
      height: '102',
    });
    const past = await gateway.get(PARAMS, { 'x-min-block-height': '7' });
    expect(past.headers.get('x-block-height')).toBe('102');
  });

  it('waits before a query of the height itself', async () => {
    const { node, gateway } = await start({});
    const headers = { 'x-min-block-height': '101', 'x-cosmos-block-height': '101' };
    const waiting = gateway.get(PARAMS, headers);
    await gateway.get(PARAMS);
    node.blocks.latest = 103;
    expect((await waiting).headers.get('x-block-height')).toBe('101');
  });

  it('asks again while a node reports a block before it has its state', async () => {
    const { node, gateway } = await start({});
    let refusals = 3;
    node.interrupt(({ method }) => {
      if (method !== ENTITY_PARAMS || refusals === 0) return undefined;
      refusals -= 1;
      return { message: entityParams(1), height: 100 };
    });
    node.blocks.latest = 101;
    const { headers } = await gateway.get(PARAMS, { 'x-min-block-height': '101' });
    expect(headers.get('x-block-height')).toBe('101');
    expect(refusals).toBe(0);
  });

  it('answers 504 if the block does not arrive in time, and 400 for one far ahead', async () => {
    const { gateway } = await start({});
    const headers = { 'x-min-block-height': '101', 'grpc-timeout': '200m' };
    const late = await gateway.get(PARAMS, headers);
    expect(late).toMatchObject({ status: 504, json: { code: 4 } });
    expect(late.json.message).toBe('block 101 has not arrived in time: the latest is 100');
    const far = await gateway.get(PARAMS, { 'x-min-block-height': '100000' });
    expect(far).toMatchObject({ status: 400, json: { code: 3 } });
    const bad = await gateway.get(PARAMS, { 'x-min-block-height': 'soon' });
    expect(bad).toMatchObject({ status: 400, json: { code: 3 } });
  });
});

describe('requests that wait for X-Min-Block-Height', () => {
  it('are limited for each caller with 429, and share the checks of the node', async () => {
    const { node, gateway } = await start({}, { GATEWAY_TRUST_PROXY: '1' });
    const wait = (address: string, timeout = '15S') =>
      gateway.get(PARAMS, {
        'x-min-block-height': '101',
        'x-forwarded-for': address,
        'grpc-timeout': timeout,
      });
    const replies: Awaited<ReturnType<typeof wait>>[] = [];
    const asked = Array.from({ length: 110 }, async () =>
      replies.push(await wait('198.51.100.1', '100S')),
    );
    await expect.poll(() => replies.length).toBe(10);
    for (const refused of replies) {
      expect(refused).toMatchObject({ status: 429, json: { code: 8, details: [] } });
      expect(refused.headers.get('retry-after')).toBe('1');
    }
    const other = wait('198.51.100.2');
    const reached = await gateway.get(PARAMS, {
      'x-min-block-height': '100',
      'x-forwarded-for': '198.51.100.1',
    });
    expect(reached.status).toBe(200);
    node.blocks.latest = 101;
    await Promise.all(asked);
    const reachedLater = [...replies.slice(10), await other];
    expect(reachedLater.map(({ headers }) => headers.get('x-block-height'))).toEqual(
      Array(101).fill('101'),
    );
    expect((await wait('198.51.100.1')).status).toBe(200);
    expect(node.countCalls(ENTITY_PARAMS)).toBeLessThan(5);
  });

  it('free their slots when the client disconnects', async () => {
    const { gateway } = await start({});
    const headers = { 'x-min-block-height': '101' };
    const leaving = new AbortController();
    const { signal } = leaving;
    const refused: number[] = [];
    const asked = Array.from({ length: 110 }, async () => {
      const { status } = await ask(gateway.url + PARAMS, { headers, signal });
      refused.push(status);
    });
    await expect.poll(() => refused).toEqual(Array(10).fill(429));
    leaving.abort();
    await Promise.allSettled(asked);
    const another = async () =>
      (await gateway.get(PARAMS, { ...headers, 'grpc-timeout': '1S' })).status;
    await expect.poll(another).toBe(504);
  });
});

describe('BlockWatch', () => {
  const readHeight = async (gateway: RunningGateway) =>
    (await gateway.get('/health')).json.latestHeight;

  it('receives blocks from the RPC of a node, also for a gRPC node with ?rpc=', async () => {
    const blocks = new ManualBlocks();
    const rpc = await startTestNode({ over: 'rpc+http', blocks });
    cleanups.push(() => rpc.close());
    const node = await startTestNode({ blocks });
    cleanups.push(() => node.close());
    const url = `${node.url}?rpc=${encodeURIComponent(rpc.url.replace('rpc+', ''))}`;
    const gateway = await startGateway([{ url }], { GATEWAY_BLOCK_POLL_MS: '60000' });
    cleanups.push(() => gateway.close());
    await expect.poll(() => blocks.listeners.size).toBe(1);
    // Polls do not show the block.
    node.interrupt(({ method }) =>
      method.endsWith('/Status') ? { message: Uint8Array.of(0x10, 100), height: 100 } : undefined,
    );
    blocks.latest = 105;
    await expect.poll(() => readHeight(gateway)).toBe('105');
  });

  it('receives blocks from an RPC whose address has a query, such as a token', async () => {
    const node = await startTestNode({ over: 'rpc+http' });
    cleanups.push(() => node.close());
    const url = `${node.url}/?token=abc`;
    const gateway = await startGateway([{ url }], { GATEWAY_BLOCK_POLL_MS: '60000' });
    cleanups.push(() => gateway.close());
    await expect.poll(() => node.blocks.listeners.size).toBe(1);
  });

  it('subscribes again when the connection is lost', async () => {
    const { node, gateway } = await start({ over: 'rpc+http' });
    await expect.poll(() => node.blocks.listeners.size).toBe(1);
    node.dropConnections();
    await expect.poll(() => node.blocks.listeners.size).toBe(0);
    await expect.poll(() => node.blocks.listeners.size, { timeout: 20_000 }).toBe(1);
    node.blocks.latest = 200;
    await expect.poll(() => readHeight(gateway)).toBe('200');
  });

  it('shares one check between concurrent cached replies', async () => {
    const { node, gateway } = await start({});
    await gateway.get(PARAMS);
    const status = 'cosmos.base.node.v1beta1.Service/Status';
    await sleep(50);
    const before = node.countCalls(status);
    await Promise.all(Array.from({ length: 50 }, () => gateway.get(PARAMS)));
    expect(node.countCalls(status) - before).toBeLessThan(25);
    expect(node.countCalls(ENTITY_PARAMS)).toBe(1);
  });
});
