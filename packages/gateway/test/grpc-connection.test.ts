import { createServer } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { GrpcUpstream } from '../src/upstream/grpc/grpc-upstream.js';
import { GrpcCode } from '../src/upstream/grpc-error.js';
import { startWire } from './support/silent-wire.js';
import { startTestNode } from './support/test-node.js';

const METHOD = '/ixo.entity.v1beta1.Query/Params';
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

function connect(url: string): GrpcUpstream {
  const upstream = new GrpcUpstream({ url: new URL(url), maxReplyBytes: 1_000_000 });
  cleanups.push(() => upstream.close());
  return upstream;
}

async function withNode() {
  const node = await startTestNode();
  cleanups.push(() => node.close());
  return { node, upstream: connect(node.url) };
}

const call = (upstream: GrpcUpstream, timeoutMs = 5000) =>
  upstream.call(METHOD, new Uint8Array(), { timeoutMs });

it('finishes what is under way when the node goes away, and goes on with a new connection', async () => {
  const { node, upstream } = await withNode();
  const gate = Promise.withResolvers<undefined>();
  const arrived = Promise.withResolvers<void>();
  node.interrupt(() => {
    arrived.resolve();
    return gate.promise;
  });
  const underWay = call(upstream);
  await arrived.promise;
  node.goAway();
  node.interrupt();
  gate.resolve(undefined);
  await expect(underWay).resolves.toMatchObject({ height: 100 });
  await expect(call(upstream)).resolves.toMatchObject({ height: 100 });
});

it('says that the connection broke, and makes a new one', async () => {
  const { node, upstream } = await withNode();
  const arrived = Promise.withResolvers<void>();
  node.interrupt(() => {
    arrived.resolve();
    return new Promise(() => {});
  });
  const cut = call(upstream);
  await arrived.promise;
  node.cutConnections();
  await expect(cut).rejects.toMatchObject({ code: GrpcCode.unavailable, origin: 'transport' });
  node.interrupt();
  await expect(call(upstream)).resolves.toMatchObject({ height: 100 });
});

it('does not try a dead node all the time, and comes back to it', async () => {
  const { node, upstream } = await withNode();
  await call(upstream);
  await node.close();
  await expect(call(upstream)).rejects.toMatchObject({ code: GrpcCode.unavailable });
  const again = await startTestNode({ port: node.port });
  cleanups.push(() => again.close());
  await expect.poll(() => call(upstream).catch(() => undefined)).toMatchObject({ height: 100 });
});

it('hangs up on a peer that fell silent, and goes on with a new connection', async () => {
  const { node } = await withNode();
  const wire = await startWire(node.port);
  cleanups.push(() => wire.close());
  const upstream = connect(`grpc://127.0.0.1:${wire.port}`);
  await call(upstream);
  wire.fallSilent();
  await expect(call(upstream, 50)).rejects.toMatchObject({ code: GrpcCode.deadlineExceeded });
  const answered = () => call(upstream, 200).then(({ height }) => height, String);
  await expect.poll(answered, { timeout: 20_000 }).toBe(100);
  expect(wire.connections).toBe(2);
});

it('sends a node one ping, however many queries are late', async () => {
  let pings = 0;
  const server = createServer();
  server.on('session', (session) => void session.on('ping', () => (pings += 1)));
  server.on('stream', () => {});
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanups.push(() => server.close());
  const upstream = connect(`grpc://127.0.0.1:${(server.address() as AddressInfo).port}`);
  for (let round = 0; round < 5; round += 1) {
    const late = Array.from({ length: 20 }, () => call(upstream, 20));
    for (const outcome of await Promise.allSettled(late)) expect(outcome.status).toBe('rejected');
  }
  await expect.poll(() => pings).toBe(1);
});
