import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import { afterEach, expect, it } from 'vitest';
import { ManualBlocks } from '../../demo-chain/test/support/manual-blocks.js';
import {
  startTestNode,
  type TestNode,
  type TestNodeOptions,
} from '../../demo-chain/test/support/test-node.js';
import { ENTITY_PARAMS } from './support/entity-params.js';
import { type RunningGateway, startGateway } from './support/running-gateway.js';

const PARAMS = '/ixo/entity/params';
const CLAIMS = '/ixo/claims/claims';
const CLAIM_LIST = 'ixo.claims.v1beta1.Query/ClaimList';
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function withNodes(
  nodes: readonly TestNodeOptions[],
  env: Record<string, string> = {},
  from: readonly string[] = [],
) {
  const started = await Promise.all(nodes.map((options) => startTestNode(options)));
  for (const node of started) cleanups.push(() => node.close());
  const addresses = started.map(({ url }, i) => ({ url: url + (from[i] ?? '') }));
  const gateway = await startGateway(addresses, { GATEWAY_METRICS_PORT: '0', ...env });
  cleanups.push(() => gateway.close());
  return { gateway, nodes: started as [TestNode, TestNode, ...TestNode[]] };
}

interface NodeHealth {
  readonly url: string;
  readonly state: string;
  readonly lag: number;
  readonly reason?: string;
}

async function readHealth(gateway: RunningGateway): Promise<NodeHealth[]> {
  return (await gateway.health()).json.details.nodes;
}

const getNodeState = async (gateway: RunningGateway, { url }: TestNode) =>
  (await readHealth(gateway)).find((node) => node.url === url)?.state;

it('loses no request when one of two nodes dies under load', async () => {
  const { gateway, nodes } = await withNodes([{}, {}], { GATEWAY_CACHE_SIZE: '0' });
  let isOver = false;
  let answered = 0;
  const failures: unknown[] = [];
  const ask = async (client: number) => {
    for (let i = 0; !isOver; i += 1) {
      // Every question differs, so that no two share a call.
      const answer = await gateway.get(`${CLAIMS}?pagination.offset=${i * 20 + client}`);
      answered += 1;
      if (answer.status !== 200) failures.push(answer.text);
    }
  };
  const clients = Array.from({ length: 20 }, (_, client) => ask(client));
  try {
    await expect
      .poll(() => nodes.map((node) => node.countCalls(CLAIM_LIST) > 50))
      .toEqual([true, true]);
    await nodes[0].close();
    const before = answered;
    await expect.poll(() => answered).toBeGreaterThan(before + 300);
  } finally {
    isOver = true;
    await Promise.all(clients);
  }
  expect(failures).toEqual([]);
  await expect.poll(() => getNodeState(gateway, nodes[0])).toBe('down');
  expect((await gateway.get('/health')).json.status).toBe('degraded');
});

it('comes back to a node that comes back', async () => {
  const { gateway, nodes } = await withNodes([{}]);
  await nodes[0].close();
  await expect.poll(async () => (await gateway.get('/health')).status).toBe(503);
  const refused = await gateway.get(PARAMS);
  expect(refused.status).toBe(503);
  expect(refused.headers.get('retry-after')).toBe('1');
  const again = await startTestNode({ port: nodes[0].port });
  cleanups.push(() => again.close());
  await expect.poll(async () => (await gateway.get(PARAMS)).status).toBe(200);
});

it('makes up for a connection that breaks, even with one node', async () => {
  const { gateway, nodes } = await withNodes([{}], { GATEWAY_CACHE_SIZE: '0' });
  let drops = 0;
  nodes[0].interrupt(({ method }) => {
    if (method !== ENTITY_PARAMS || drops > 0) return undefined;
    drops += 1;
    nodes[0].dropConnections();
    return new Promise(() => {});
  });
  expect((await gateway.get(PARAMS)).status).toBe(200);
  expect(drops).toBe(1);
});

it('NodePool loses no request when a node sends GOAWAY', async () => {
  const { gateway, nodes } = await withNodes([{}], { GATEWAY_CACHE_SIZE: '0' });
  for (let i = 0; i < 5; i += 1) {
    const asked = Array.from({ length: 20 }, (_, n) => gateway.get(`${PARAMS}?height=${n + 1}`));
    nodes[0].goAway();
    const statuses = (await Promise.all(asked)).map(({ status }) => status);
    expect(new Set(statuses)).toEqual(new Set([200]));
  }
});

it('NodePool uses lagging nodes only for heights they have', async () => {
  const { gateway, nodes } = await withNodes(
    [{ blocks: new ManualBlocks(90) }, { blocks: new ManualBlocks(100) }],
    { GATEWAY_CACHE_SIZE: '0' },
  );
  for (let i = 0; i < 20; i += 1) {
    expect((await gateway.get(PARAMS)).headers.get('x-block-height')).toBe('100');
  }
  expect(nodes[0].countCalls(ENTITY_PARAMS)).toBe(0);
  expect(await readHealth(gateway)).toMatchObject([{ state: 'lagging', lag: 10 }, { state: 'up' }]);
  nodes[0].blocks.latest = 100;
  await expect.poll(() => getNodeState(gateway, nodes[0])).toBe('up');
  await Promise.all(
    Array.from({ length: 20 }, (_, i) => gateway.get(`/ixo/claims/claims?pagination.offset=${i}`)),
  );
  expect(nodes[0].countCalls('ixo.claims.v1beta1.Query/ClaimList')).toBeGreaterThan(0);
});

it('falls back to a node that lags when the other is gone', async () => {
  const { gateway, nodes } = await withNodes([
    { blocks: new ManualBlocks(90) },
    { blocks: new ManualBlocks(100) },
  ]);
  await nodes[1].close();
  await expect
    .poll(async () => (await gateway.get(PARAMS)).headers.get('x-block-height'))
    .toBe('90');
});

it('finds the node that keeps an old height, and goes straight to it from then on', async () => {
  const pruned = new ManualBlocks(100);
  pruned.earliest = 80;
  const { gateway, nodes } = await withNodes(
    [{ blocks: pruned, over: 'rpc+http' }, { blocks: new ManualBlocks(100) }],
    { GATEWAY_CACHE_SIZE: '0' },
  );
  for (const height of [5, 6, 79]) {
    const { headers } = await gateway.get(`${PARAMS}?height=${height}`);
    expect(headers.get('x-block-height')).toBe(String(height));
  }
  expect(nodes[0].countCalls(ENTITY_PARAMS)).toBe(0);
  expect((await gateway.get(`${PARAMS}?height=85`)).status).toBe(200);
});

it('learns from a refusal which heights a node lacks', async () => {
  const { gateway, nodes } = await withNodes([{}, {}], { GATEWAY_CACHE_SIZE: '0' });
  hideEarliest(nodes[0], 80);
  for (const height of [20, 19, 18, 17, 16]) {
    expect((await gateway.get(`${PARAMS}?height=${height}`)).status).toBe(200);
  }
  expect(nodes[0].countCalls(ENTITY_PARAMS)).toBeLessThanOrEqual(1);
});

it('NodePool finds the range of a node that does not report it', async () => {
  const { gateway, nodes } = await withNodes([{}]);
  hideEarliest(nodes[0], 77);
  const { status, json } = await gateway.get(`${PARAMS}?height=20`);
  expect(status).toBe(404);
  expect(json.message).toBe('height 20 is no longer kept: available are 77 to 100');
});

it('NodePool tries the next node when one answers unavailable', async () => {
  const { gateway, nodes } = await withNodes([{}, {}], { GATEWAY_CACHE_SIZE: '0' });
  nodes[0].interrupt(({ method }) => {
    if (method === ENTITY_PARAMS) throw new GrpcError(GrpcCode.unavailable, 'draining');
    return undefined;
  });
  for (let i = 0; i < 10; i += 1) expect((await gateway.get(PARAMS)).status).toBe(200);
});

it('NodePool avoids a failing node until it has recovered', async () => {
  const { gateway, nodes } = await withNodes([{}, {}], { GATEWAY_CACHE_SIZE: '0' });
  nodes[0].interrupt(() => {
    throw new GrpcError(GrpcCode.unavailable, 'out of order');
  });
  await expect.poll(() => getNodeState(gateway, nodes[0])).toBe('down');
  const before = nodes[0].countCalls(ENTITY_PARAMS);
  for (let i = 0; i < 20; i += 1) expect((await gateway.get(PARAMS)).status).toBe(200);
  expect(nodes[0].countCalls(ENTITY_PARAMS)).toBe(before);
  expect((await readHealth(gateway))[0]?.reason).toContain('out of order');
  nodes[0].interrupt();
  await expect.poll(() => getNodeState(gateway, nodes[0])).toBe('up');
});

it('NodePool tries another node while one hangs', async () => {
  const { gateway, nodes } = await withNodes([{}, {}], {
    GATEWAY_CACHE_SIZE: '0',
    GATEWAY_TIMEOUT_SECONDS: '3',
  });
  nodes[0].interrupt(({ method }) =>
    method === ENTITY_PARAMS ? new Promise(() => {}) : undefined,
  );
  const statuses = await Promise.all(
    Array.from(
      { length: 4 },
      async (_, i) => (await gateway.get(`${PARAMS}?height=${i + 1}`)).status,
    ),
  );
  expect(statuses).toEqual([200, 200, 200, 200]);
});

it('never reveals the credentials of an address', async () => {
  const { gateway } = await withNodes([{}, {}], {}, ['/secret-path?key=hidden', '']);
  const { text } = await gateway.health();
  expect(text).not.toContain('secret-path');
  expect(text).not.toContain('hidden');
});

/** A node that prunes without saying so in its status, as nodes of today do. */
function hideEarliest(node: TestNode, earliest: number): void {
  node.interrupt(({ height }) => {
    if (height === undefined || height >= earliest) return undefined;
    const text = `failed to load state at height ${height}; version does not exist`;
    throw new GrpcError(GrpcCode.invalidArgument, text);
  });
}
