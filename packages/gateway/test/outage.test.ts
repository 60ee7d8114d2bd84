import { afterEach, describe, expect, it, vi } from 'vitest';
import { loadChainSchema } from '../../demo-chain/src/chain-schema.js';
import { createDemoChain } from '../../demo-chain/src/demo-chain.js';
import { startBlocks } from '../../demo-chain/src/queries/service.js';
import { ManualBlocks } from '../../demo-chain/test/support/manual-blocks.js';
import { startTestNode } from '../../demo-chain/test/support/test-node.js';
import { ENTITY_PARAMS } from './support/entity-params.js';
import { startNodeProcess } from './support/node-process.js';
import { ask, startGateway } from './support/running-gateway.js';

const PARAMS = '/ixo/entity/params';
/** Not a query of the chain's state, so the reply is kept for a second. */
const SYNCING = '/cosmos/base/tendermint/v1beta1/syncing?height=60';
const GET_SYNCING = 'cosmos.base.tendermint.v1beta1.Service/GetSyncing';
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  vi.restoreAllMocks();
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

describe('the reply cache while no node answers', () => {
  it('serves cached heights during an outage, and 503 for the latest block', {
    timeout: 180_000,
  }, async () => {
    const nodes = await Promise.all([startNodeProcess(), startNodeProcess()]);
    for (const node of nodes) cleanups.push(() => node.kill());
    const gateway = await startGateway(nodes);
    cleanups.push(() => gateway.close());
    const latest = await gateway.get(PARAMS);
    const height = String(Number(latest.headers.get('x-block-height')) - 10);
    const atHeight = { 'x-cosmos-block-height': height };
    const kept = await gateway.get(PARAMS, atHeight);
    expect([latest.status, kept.status]).toEqual([200, 200]);

    await Promise.all(nodes.map((node) => node.kill()));
    await expect
      .poll(async () => (await gateway.get('/health')).json, { timeout: 20_000 })
      .toMatchObject({ status: 'down', nodes: { up: 0, down: 2 } });

    // The reply about the latest block is one about its height.
    const then = { 'x-cosmos-block-height': String(latest.headers.get('x-block-height')) };
    const known = await gateway.get(PARAMS, then);
    expect({ status: known.status, text: known.text }).toEqual({ status: 200, text: latest.text });
    expect(known.headers.get('cache-control')).toContain('immutable');
    const again = await gateway.get(PARAMS, atHeight);
    expect({ status: again.status, text: again.text }).toEqual({ status: 200, text: kept.text });
    expect(again.headers.get('x-block-height')).toBe(height);
    const refused = await gateway.get(PARAMS);
    expect(refused).toMatchObject({ status: 503, json: { code: 14 } });
    expect(refused.headers.get('retry-after')).toBe('1');
    const unknown = await gateway.get('/ixo/token/params', atHeight);
    expect(unknown.status).toBe(503);
    const batch = await ask(`${gateway.url}/batch`, {
      method: 'POST',
      body: JSON.stringify({ height, queries: [PARAMS] }),
    });
    expect(batch.json.results).toMatchObject([{ status: 200, body: JSON.parse(kept.text) }]);
  });
});

it('answers 503 while reflection fails, and looks up a type inside an Any again afterwards', async () => {
  const blocks = new ManualBlocks();
  const chain = createDemoChain({ schema: loadChainSchema(), blocks, version: 'v1.0.0' });
  const streams = { ...chain.streams };
  const node = await startTestNode({ blocks, chain: { ...chain, streams } });
  cleanups.push(() => node.close());
  const gateway = await startGateway([node]);
  cleanups.push(() => gateway.close());
  const reset = () => {
    throw new Error('the stream is reset');
  };
  for (const method of Object.keys(streams)) streams[method] = reset;
  // Chain reflection declares the type, too, but may do so in another version.
  const validators = '/cosmos/base/tendermint/v1beta1/validatorsets/latest';
  const refused = await gateway.get(validators);
  expect(refused).toMatchObject({
    status: 503,
    json: { code: 14, message: expect.stringContaining('cosmos.crypto.ed25519.PubKey') },
  });
  expect(refused.headers.get('retry-after')).toBe('1');
  Object.assign(streams, chain.streams);
  expect((await gateway.get(validators)).status).toBe(200);
});

describe('a step of the wall clock', { timeout: 180_000 }, () => {
  const HOUR_MS = 3_600_000;
  const realNow = Date.now;
  const step = (ms: number) => vi.spyOn(Date, 'now').mockImplementation(() => realNow() + ms);

  it.each([-HOUR_MS, HOUR_MS])(
    'of %d ms rejects no caller and leaves the cache right',
    async (ms) => {
      const node = await startTestNode();
      cleanups.push(() => node.close());
      const gateway = await startGateway([node], { GATEWAY_RATE_LIMIT_PER_MINUTE: '10000' });
      cleanups.push(() => gateway.close());
      const statuses: number[] = [];
      const query = async (path = PARAMS) => {
        const answer = await gateway.get(path);
        statuses.push(answer.status);
        return answer;
      };
      await query();
      await query(`${PARAMS}?height=60`);
      await query(SYNCING);
      const calls = node.countCalls(ENTITY_PARAMS);
      const before = node.countCalls(GET_SYNCING);
      step(ms);
      for (let i = 0; i < 5; i += 1) await query();
      await query(`${PARAMS}?height=60`);
      // Still cached...
      expect(node.countCalls(ENTITY_PARAMS)).toBe(calls);
      // ...until the next block, which is noticed as before.
      node.blocks.latest += 1;
      await expect
        .poll(async () => (await query()).headers.get('x-block-height'))
        .toBe(String(node.blocks.latest));
      // What is kept for a second goes after a second.
      const callsAfter = async () => {
        await query(SYNCING);
        return node.countCalls(GET_SYNCING);
      };
      await expect.poll(callsAfter, { timeout: 20_000 }).toBeGreaterThan(before);
      expect(new Set(statuses)).toEqual(new Set([200]));
    },
  );

  it.each([-HOUR_MS, HOUR_MS])('of %d ms keeps no node away that comes back', async (ms) => {
    const node = await startTestNode();
    cleanups.push(() => node.close());
    const gateway = await startGateway([node]);
    cleanups.push(() => gateway.close());
    const status = async () => (await gateway.get('/health')).json.status;
    await node.close();
    await expect.poll(status, { timeout: 20_000 }).toBe('down');
    step(ms);
    const again = await startTestNode({ port: node.port });
    cleanups.push(() => again.close());
    await expect.poll(status, { timeout: 20_000 }).toBe('ok');
    await expect.poll(async () => (await gateway.get(PARAMS)).status).toBe(200);
  });

  it.each([-HOUR_MS, HOUR_MS])('of %d ms moves no height of the demo chain (startBlocks)', (ms) => {
    const blocks = startBlocks({ everyMs: HOUR_MS / 10, past: 720, kept: 500 });
    const { latest, earliest } = blocks;
    step(ms);
    expect([blocks.latest, blocks.earliest]).toEqual([latest, earliest]);
  });
});
