import type { AddressInfo } from 'node:net';
import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import { afterEach, describe, expect, it } from 'vitest';
import { ManualBlocks } from '../../demo-chain/test/support/manual-blocks.js';
import { startTestNode, type TestNode } from '../../demo-chain/test/support/test-node.js';
import { startGateway } from './support/running-gateway.js';

const PARAMS = '/ixo/entity/params';
/** The time within which the gateway must be right again. */
const RIGHT_WITHIN = { timeout: 10_000 };
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function withNode(blocks: ManualBlocks, port = 0): Promise<TestNode> {
  const node = await startTestNode({ blocks, port });
  cleanups.push(() => node.close());
  return node;
}

async function withGateway(
  nodes: readonly { readonly url: string }[],
  env?: Readonly<Record<string, string>>,
) {
  const gateway = await startGateway(nodes, env);
  cleanups.push(() => gateway.close());
  return gateway;
}

/** A node that prunes without saying so in its status. */
function prune(node: TestNode, earliest: number): void {
  node.interrupt(({ height }) => {
    if (height === undefined || height >= earliest) return undefined;
    const text = `failed to load state at height ${height}; version does not exist: invalid request`;
    throw new GrpcError(GrpcCode.unknown, text);
  });
}

/** A proxy that passes connections on to one of several nodes. */
async function startProxy(choose: () => TestNode) {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    const node = connect(choose().port, '127.0.0.1');
    for (const end of [socket, node]) {
      sockets.add(end);
      end.on('error', () => {}).once('close', () => sockets.delete(end));
    }
    socket.pipe(node).pipe(socket);
    socket.once('close', () => node.destroy());
    node.once('close', () => socket.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const drop = () => {
    for (const socket of sockets) socket.destroy();
  };
  cleanups.push(() => {
    drop();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { url: `grpc://127.0.0.1:${port}`, drop };
}

describe('pruned heights', { timeout: 120_000 }, () => {
  it('are refused within the timeout of the query, although a slow node takes longer to find the first one', async () => {
    const node = await withNode(new ManualBlocks(1_000_000));
    const gateway = await withGateway([node], { GATEWAY_TIMEOUT_SECONDS: '1' });
    let probes = 0;
    node.interrupt(async ({ method, height }) => {
      if (height === undefined) return undefined;
      if (method.endsWith('/Status')) {
        probes += 1;
        await sleep(500);
      }
      const text = `failed to load state at height ${height}; version does not exist: invalid request`;
      throw new GrpcError(GrpcCode.unknown, text);
    });
    const { status, json } = await gateway.get(`${PARAMS}?height=5`);
    expect({ status, message: json.message }).toEqual({
      status: 404,
      message: 'height 5 is no longer kept: available are a height above 5 to 1000000',
    });
    // A complete search takes twenty.
    expect(probes).toBeLessThan(10);
  });

  it('are served once a proxy switches from a pruned to an archive node', async () => {
    const [pruned, archive] = [
      await withNode(new ManualBlocks(300)),
      await withNode(new ManualBlocks(300)),
    ];
    prune(pruned, 288);
    let current = pruned;
    const proxy = await startProxy(() => current);
    const gateway = await withGateway([proxy]);
    const refused = await gateway.get(`${PARAMS}?height=5`);
    expect(refused).toMatchObject({ status: 404, json: { code: 5 } });
    expect(refused.json.message).toContain('available are 288 to 300');
    current = archive;
    proxy.drop();
    const status = async () => (await gateway.get(`${PARAMS}?height=5`)).status;
    await expect.poll(status, RIGHT_WITHIN).toBe(200);
    expect((await gateway.get(`${PARAMS}?height=100`)).status).toBe(200);
  });

  it('are asked for again, since a node behind the same connection may have them', async () => {
    const node = await withNode(new ManualBlocks(300));
    prune(node, 288);
    const gateway = await withGateway([node]);
    expect((await gateway.get(`${PARAMS}?height=200`)).status).toBe(404);
    node.interrupt();
    expect((await gateway.get(`${PARAMS}?height=200`)).status).toBe(200);
    expect((await gateway.get(`${PARAMS}?height=5`)).status).toBe(200);
  });

  it('do not make a node with ?from=1 forget its history', async () => {
    const [archive, other] = [
      await withNode(new ManualBlocks(300)),
      await withNode(new ManualBlocks(300)),
    ];
    prune(archive, 288);
    prune(other, 288);
    const gateway = await withGateway([{ url: `${archive.url}?from=1` }, other]);
    expect((await gateway.get(`${PARAMS}?height=5`)).status).not.toBe(200);
    archive.interrupt();
    const before = other.countCalls('ixo.entity.v1beta1.Query/Params');
    expect((await gateway.get(`${PARAMS}?height=5`)).status).toBe(200);
    expect((await gateway.get(`${PARAMS}?height=4`)).status).toBe(200);
    expect(other.countCalls('ixo.entity.v1beta1.Query/Params')).toBe(before);
  });
});

describe('a chain that is reset', { timeout: 120_000 }, () => {
  it('is served from its new beginning, without anything of the old one', async () => {
    const before = await startTestNode({ blocks: new ManualBlocks(300) });
    prune(before, 288);
    const gateway = await withGateway([before]);
    expect((await gateway.get(`${PARAMS}?height=290`)).status).toBe(200);
    expect((await gateway.get(`${PARAMS}?height=5`)).status).toBe(404);
    await before.close();
    await withNode(new ManualBlocks(17), before.port);
    const latest = async () => (await gateway.get(PARAMS)).headers.get('x-block-height');
    await expect.poll(latest, RIGHT_WITHIN).toBe('17');
    expect((await gateway.get(`${PARAMS}?height=5`)).status).toBe(200);
    const future = await gateway.get(`${PARAMS}?height=290`);
    expect(future).toMatchObject({ status: 400 });
    expect(future.json.message).toBe('height 290 is in the future: the latest is 17');
  });

  it('is not assumed when nodes behind one address differ by a block', async () => {
    const node = await withNode(new ManualBlocks(300));
    const gateway = await withGateway([node]);
    const height = async () => (await gateway.get('/health')).json.latestHeight;
    await gateway.get(`${PARAMS}?height=290`);
    let isBehind = false;
    node.interrupt(({ method }) => {
      if (!method.endsWith('/Status')) return undefined;
      isBehind = !isBehind;
      const reported = isBehind ? 299 : 300;
      return {
        message: Buffer.from([0x10, (reported & 0x7f) | 0x80, reported >> 7]),
        height: reported,
      };
    });
    const polls = node.countCalls('cosmos.base.node.v1beta1.Service/Status');
    await expect
      .poll(() => node.countCalls('cosmos.base.node.v1beta1.Service/Status'))
      .toBeGreaterThan(polls + 6);
    expect(await height()).toBe('300');
    await gateway.get(`${PARAMS}?height=290`);
    expect(node.countCalls('ixo.entity.v1beta1.Query/Params')).toBe(1);
  });

  it('is not assumed when a slow reply is of an older block', async () => {
    const node = await withNode(new ManualBlocks(300));
    const gateway = await withGateway([node]);
    const height = async () => (await gateway.get('/health')).json.latestHeight;
    await gateway.get(`${PARAMS}?height=290`);
    const gate = Promise.withResolvers<undefined>();
    node.interrupt(async ({ method }) => {
      if (method !== 'ixo.claims.v1beta1.Query/Params') return undefined;
      await gate.promise;
      return { message: new Uint8Array(), height: 300 };
    });
    const slow = gateway.get('/ixo/claims/params');
    await expect.poll(() => node.countCalls('ixo.claims.v1beta1.Query/Params')).toBe(1);
    node.blocks.latest = 320;
    await expect.poll(height).toBe('320');
    gate.resolve(undefined);
    expect((await slow).headers.get('x-block-height')).toBe('300');
    expect(await height()).toBe('320');
    await gateway.get(`${PARAMS}?height=290`);
    expect(node.countCalls('ixo.entity.v1beta1.Query/Params')).toBe(1);
  });
});
