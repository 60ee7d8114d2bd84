import { createServer } from 'node:http2';
import {
  type AddressInfo,
  connect as connectSocket,
  createServer as createTcpServer,
} from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { startTestNode } from '../../demo-chain/test/support/test-node.js';
import { createGrpcClient, type GrpcClient } from '../src/grpc-client.js';
import { GrpcCode } from '../src/grpc-error.js';
import { startWire } from './support/silent-wire.js';

const METHOD = '/ixo.entity.v1beta1.Query/Params';
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

describe.each(['own', 'node'] as const)('with %s HTTP/2', (http2) => {
  function connect(url: string): GrpcClient {
    const client = createGrpcClient({ url: new URL(url), http2, maxReplyBytes: 1_000_000 });
    cleanups.push(() => client.close());
    return client;
  }

  async function withNode() {
    const node = await startTestNode();
    cleanups.push(() => node.close());
    return { node, client: connect(node.url) };
  }

  async function call(client: GrpcClient, timeoutMs = 5000) {
    const { headers } = await client.call(METHOD, new Uint8Array(), { timeoutMs });
    return { height: Number(headers.get('x-cosmos-block-height')) };
  }

  it('GrpcClient finishes running calls after GOAWAY and opens a new connection', async () => {
    const { node, client } = await withNode();
    const gate = Promise.withResolvers<undefined>();
    const arrived = Promise.withResolvers<void>();
    node.interrupt(() => {
      arrived.resolve();
      return gate.promise;
    });
    const running = call(client);
    await arrived.promise;
    node.goAway();
    node.interrupt();
    gate.resolve(undefined);
    await expect(running).resolves.toMatchObject({ height: 100 });
    await expect(call(client)).resolves.toMatchObject({ height: 100 });
  });

  it('GrpcClient reports a lost connection and opens a new one', async () => {
    const { node, client } = await withNode();
    const arrived = Promise.withResolvers<void>();
    node.interrupt(() => {
      arrived.resolve();
      return new Promise(() => {});
    });
    const lost = call(client);
    await arrived.promise;
    node.dropConnections();
    await expect(lost).rejects.toMatchObject({ code: GrpcCode.unavailable, origin: 'transport' });
    node.interrupt();
    await expect(call(client)).resolves.toMatchObject({ height: 100 });
  });

  it('GrpcClient backs off from a dead server and reconnects later', async () => {
    const { node, client } = await withNode();
    await call(client);
    await node.close();
    await expect(call(client)).rejects.toMatchObject({ code: GrpcCode.unavailable });
    const again = await startTestNode({ port: node.port });
    cleanups.push(() => again.close());
    await expect.poll(() => call(client).catch(() => undefined)).toMatchObject({ height: 100 });
  });

  it('GrpcClient closes the connection of a silent peer and opens a new one', async () => {
    const { node } = await withNode();
    const wire = await startWire(node.port);
    cleanups.push(() => wire.close());
    const client = connect(`grpc://127.0.0.1:${wire.port}`);
    await call(client);
    wire.fallSilent();
    await expect(call(client, 50)).rejects.toMatchObject({ code: GrpcCode.deadlineExceeded });
    const answered = () => call(client, 200).then(({ height }) => height, String);
    await expect.poll(answered, { timeout: 20_000 }).toBe(100);
    expect(wire.connections).toBe(2);
  });

  it('GrpcClient counts the time to connect, and does not send calls canceled meanwhile', async () => {
    const { node } = await withNode();
    const answers = Promise.withResolvers<void>();
    const server = createTcpServer((near) => {
      near.on('error', () => {});
      void answers.promise.then(() => {
        const far = connectSocket(node.port, '127.0.0.1').on('error', () => {});
        near.pipe(far).pipe(near);
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    cleanups.push(() => server.close());
    const client = connect(`grpc://127.0.0.1:${(server.address() as AddressInfo).port}`);
    const startedAt = performance.now();
    await expect(call(client, 100)).rejects.toMatchObject({ code: GrpcCode.unavailable });
    const opened = client.open(METHOD, { timeoutMs: 100 });
    await expect(opened).rejects.toMatchObject({ code: GrpcCode.unavailable });
    const leaving = new AbortController();
    const { signal } = leaving;
    const canceled = client.call(METHOD, new Uint8Array(), { timeoutMs: 5000, signal });
    leaving.abort();
    await expect(canceled).rejects.toMatchObject({ code: GrpcCode.cancelled });
    expect(performance.now() - startedAt).toBeLessThan(3000);
    answers.resolve();
    await expect(call(client)).resolves.toMatchObject({ height: 100 });
    const late = client.call(METHOD, new Uint8Array(), { timeoutMs: 5000, signal });
    await expect(late).rejects.toMatchObject({ code: GrpcCode.cancelled });
    expect(node.countCalls(METHOD.slice(1))).toBe(1);
  });

  it('GrpcClient sends one ping when many calls time out', async () => {
    let pings = 0;
    const server = createServer();
    server.on('session', (session) => void session.on('ping', () => (pings += 1)));
    server.on('stream', () => {});
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    cleanups.push(() => server.close());
    const client = connect(`grpc://127.0.0.1:${(server.address() as AddressInfo).port}`);
    for (let round = 0; round < 5; round += 1) {
      const late = Array.from({ length: 20 }, () => call(client, 20));
      for (const outcome of await Promise.allSettled(late)) expect(outcome.status).toBe('rejected');
    }
    await expect.poll(() => pings).toBe(1);
  });
});
