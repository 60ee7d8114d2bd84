import { createServer, type Http2Server, type ServerHttp2Stream } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { LOCALHOST_TLS } from '../../demo-chain/test/support/localhost-tls.js';
import { startTestNode, type TestNodeOptions } from '../../demo-chain/test/support/test-node.js';
import { createGrpcClient, type GrpcClient } from '../src/grpc-client.js';
import { GrpcCode } from '../src/grpc-error.js';
import { encodeMessage, ReplyMemory } from '../src/message-framing.js';

const METHOD = '/ixo.entity.v1beta1.Query/Params';
const HEIGHT = 'x-cosmos-block-height';
const NOTHING = new Uint8Array();
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

describe.each(['own', 'node'] as const)('with %s HTTP/2', (http2) => {
  function connect(url: string, maxReplyBytes = 1_000_000): GrpcClient {
    const ca = [LOCALHOST_TLS.cert];
    const client = createGrpcClient({ url: new URL(url), ca, http2, maxReplyBytes });
    cleanups.push(() => client.close());
    return client;
  }

  async function withNode(options: TestNodeOptions = {}) {
    const node = await startTestNode(options);
    cleanups.push(() => node.close());
    return { node, client: connect(node.url) };
  }

  /** A server that responds as the test defines, as gRPC or not. */
  async function withServer(answer: (stream: ServerHttp2Stream) => void): Promise<GrpcClient> {
    const server: Http2Server = createServer();
    server.on('stream', (stream: ServerHttp2Stream) => {
      stream.on('error', () => {});
      answer(stream);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    cleanups.push(() => server.close());
    return connect(`grpc://127.0.0.1:${port}`, 1000);
  }

  async function call(client: GrpcClient, timeoutMs = 5000, metadata = {}) {
    const { message, headers } = await client.call(METHOD, NOTHING, { timeoutMs, metadata });
    return { message, height: Number(headers.get(HEIGHT)) };
  }

  const GRPC = { ':status': 200, 'content-type': 'application/grpc' };

  function reply(stream: ServerHttp2Stream, body: Buffer, trailers: Record<string, string>): void {
    stream.respond(GRPC, { waitForTrailers: true });
    stream.once('wantTrailers', () => stream.sendTrailers(trailers));
    stream.end(body);
  }

  describe.each(['grpc', 'grpcs'] as const)('GrpcClient over %s', (over) => {
    it('sends metadata and reads the message and the headers', async () => {
      const { client } = await withNode({ over });
      expect(await call(client)).toMatchObject({ height: 100 });
      const reply = await call(client, 5000, { [HEIGHT]: '42' });
      expect(reply).toMatchObject({ height: 42 });
      expect(reply.message.length).toBeGreaterThan(0);
    });
  });

  it('GrpcClient rejects a server with an untrusted certificate', async () => {
    const { node } = await withNode({ over: 'grpcs' });
    const client = createGrpcClient({ url: new URL(node.url), http2, maxReplyBytes: 1000 });
    cleanups.push(() => client.close());
    await expect(call(client)).rejects.toMatchObject({ code: GrpcCode.unavailable });
  });

  it('GrpcClient.call rejects at the deadline and can be called again', async () => {
    const { node, client } = await withNode();
    node.interrupt(() => new Promise(() => {}));
    await expect(call(client, 50)).rejects.toMatchObject({
      code: GrpcCode.deadlineExceeded,
      origin: 'transport',
    });
    node.interrupt();
    await expect(call(client)).resolves.toMatchObject({ height: 100 });
  });

  it('GrpcClient.call rejects when its signal aborts', async () => {
    const { node, client } = await withNode();
    const arrived = Promise.withResolvers<void>();
    node.interrupt(() => {
      arrived.resolve();
      return new Promise(() => {});
    });
    const controller = new AbortController();
    const asked = client.call(METHOD, NOTHING, { timeoutMs: 5000, signal: controller.signal });
    await arrived.promise;
    controller.abort();
    await expect(asked).rejects.toMatchObject({ code: GrpcCode.cancelled });
  });

  it('GrpcClient.call decodes the text of an error', async () => {
    const client = await withServer((stream) => {
      const status = { 'grpc-status': '5', 'grpc-message': 'not f%C3%B6und: 100%25' };
      stream.respond({ ...GRPC, ...status }, { endStream: true });
    });
    await expect(call(client)).rejects.toMatchObject({
      code: GrpcCode.notFound,
      message: 'not föund: 100%',
      origin: 'node',
    });
  });

  it.each([
    ['refused stream', 7, GrpcCode.unavailable],
    ['cancel', 8, GrpcCode.cancelled],
    ['enhance your calm', 11, GrpcCode.resourceExhausted],
    ['inadequate security', 12, GrpcCode.permissionDenied],
    ['internal error', 2, GrpcCode.internal],
    ['protocol error', 1, GrpcCode.internal],
  ])('GrpcClient.call maps a reset with %s', async (_, reset, code) => {
    const client = await withServer((stream) => stream.close(reset));
    await expect(call(client)).rejects.toMatchObject({ code, origin: 'transport' });
  });

  it.each([
    [401, GrpcCode.unauthenticated],
    [403, GrpcCode.permissionDenied],
    [404, GrpcCode.unimplemented],
    [502, GrpcCode.unavailable],
    [503, GrpcCode.unavailable],
    [200, GrpcCode.unknown],
  ])('GrpcClient.call maps HTTP %i of a proxy to a gRPC code', async (status, code) => {
    const client = await withServer((stream) => {
      stream.respond({ ':status': status, 'content-type': 'text/html' });
      stream.end('<html>');
    });
    await expect(call(client)).rejects.toMatchObject({ code, origin: 'transport' });
  });

  it('GrpcClient.call rejects replies over the size limit', async () => {
    const large = await withServer((stream) => {
      reply(stream, encodeMessage(Buffer.alloc(1001)), { 'grpc-status': '0' });
    });
    await expect(call(large)).rejects.toMatchObject({ code: GrpcCode.resourceExhausted });
    const exact = await withServer((stream) => {
      reply(stream, encodeMessage(Buffer.alloc(1000)), { 'grpc-status': '0' });
    });
    expect((await call(exact)).message).toHaveLength(1000);
  });

  it('GrpcClient.call refuses large replies beyond the part of the memory for their owner', async () => {
    const memory = new ReplyMemory(1_000_000, 100_000);
    const { node } = await withNode();
    node.interrupt(() => ({ message: Buffer.alloc(50_000) }));
    const client = createGrpcClient({
      url: new URL(node.url),
      http2,
      memory,
      maxReplyBytes: 100_000,
    });
    cleanups.push(() => client.close());
    const callFor = (owner: string) => client.call(METHOD, NOTHING, { timeoutMs: 5000, owner });
    const arriving = memory.reserve('a');
    arriving.grow(60_000);
    await expect(callFor('a')).rejects.toMatchObject({ code: GrpcCode.resourceExhausted });
    expect((await callFor('b')).message).toHaveLength(50_000);
    arriving.release();
    expect((await callFor('a')).message).toHaveLength(50_000);
  });

  it.each([
    ['compressed', Buffer.from([1, 0, 0, 0, 1, 7])],
    ['incomplete', Buffer.from([0, 0, 0, 0, 9, 7])],
    ['missing', Buffer.alloc(0)],
    [
      'sent twice',
      Buffer.concat([encodeMessage(Buffer.from('a')), encodeMessage(Buffer.from('b'))]),
    ],
  ])('GrpcClient.call rejects a message that is %s', async (_, body) => {
    const client = await withServer((stream) => reply(stream, body, { 'grpc-status': '0' }));
    await expect(call(client)).rejects.toMatchObject({ code: GrpcCode.internal });
  });

  it('GrpcClient.call assembles a reply from many chunks', async () => {
    const message = Buffer.from(Array.from({ length: 900 }, (_, i) => i % 256));
    const client = await withServer((stream) => {
      stream.respond(GRPC, { waitForTrailers: true });
      stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
      for (const byte of encodeMessage(message)) stream.write(Buffer.from([byte]));
      stream.end();
    });
    expect(Buffer.from((await call(client)).message).equals(message)).toBe(true);
  });

  it('GrpcClient makes many concurrent calls on one connection', async () => {
    const { node, client } = await withNode();
    const replies = await Promise.all(Array.from({ length: 500 }, () => call(client)));
    expect(replies.every(({ height }) => height === 100)).toBe(true);
    expect(node.countCalls('ixo.entity.v1beta1.Query/Params')).toBe(500);
  });

  it('GrpcClient sends metadata, timeout, authorization and user agent', async () => {
    const seen = Promise.withResolvers<Record<string, unknown>>();
    const server = createServer();
    server.on('stream', (stream, headers) => {
      seen.resolve(headers);
      reply(stream, encodeMessage(NOTHING), { 'grpc-status': '0' });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    cleanups.push(() => server.close());
    const { port } = server.address() as AddressInfo;
    const client = createGrpcClient({
      url: new URL(`grpc://127.0.0.1:${port}`),
      authorization: 'Basic YW5u',
      userAgent: 'test',
      http2,
      maxReplyBytes: 1000,
    });
    cleanups.push(() => client.close());
    await client.call(METHOD, NOTHING, { timeoutMs: 1500, metadata: { 'x-trace': 'abc' } });
    expect(await seen.promise).toMatchObject({
      ':path': METHOD,
      'grpc-timeout': '1500m',
      'x-trace': 'abc',
      authorization: 'Basic YW5u',
      'user-agent': 'test',
    });
  });

  const REFLECTION = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo';
  /** ServerReflectionRequest: 7 list_services. */
  const LIST_SERVICES = Buffer.from([(7 << 3) | 2, 1, 0x2a]);

  it('GrpcClient.open sends messages and receives one reply for each', async () => {
    const { client } = await withNode();
    const stream = await client.open(REFLECTION, { timeoutMs: 5000 });
    const replies = [await stream.send(LIST_SERVICES), await stream.send(LIST_SERVICES)];
    for (const reply of replies) expect(String(reply)).toContain('ixo.entity.v1beta1.Query');
    stream.close();
    await expect(stream.send(LIST_SERVICES)).rejects.toMatchObject({ code: GrpcCode.cancelled });
  });

  it('GrpcClient.open rejects pending messages at the deadline', async () => {
    const client = await withServer((stream) => stream.respond(GRPC));
    // Connects: that may take longer.
    (await client.open(REFLECTION, { timeoutMs: 60_000 })).close();
    const stream = await client.open(REFLECTION, { timeoutMs: 50 });
    const late = { code: GrpcCode.deadlineExceeded };
    await expect(stream.send(LIST_SERVICES)).rejects.toMatchObject(late);
  });

  it('GrpcClient.open rejects when the server does not have the method', async () => {
    const status = {
      'grpc-status': String(GrpcCode.unimplemented),
      'grpc-message': 'no such method',
    };
    const client = await withServer((stream) =>
      stream.respond({ ...GRPC, ...status }, { endStream: true }),
    );
    const stream = await client.open('/no.such.Service/Method', { timeoutMs: 60_000 });
    await expect(stream.send(LIST_SERVICES)).rejects.toMatchObject({
      code: GrpcCode.unimplemented,
    });
  });
});
