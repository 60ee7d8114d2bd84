import { createServer, type Http2Server, type ServerHttp2Stream } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { GrpcUpstream } from '../src/upstream/grpc/grpc-upstream.js';
import { frameOf } from '../src/upstream/grpc/message-frame.js';
import { GrpcCode } from '../src/upstream/grpc-error.js';
import { LOCALHOST_TLS } from './support/localhost-tls.js';
import { startTestNode, type TestNodeOptions } from './support/test-node.js';

const METHOD = '/ixo.entity.v1beta1.Query/Params';
const NOTHING = new Uint8Array();
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

function connect(url: string, maxReplyBytes = 1_000_000): GrpcUpstream {
  const ca = [LOCALHOST_TLS.cert];
  const upstream = new GrpcUpstream({ url: new URL(url), ca, maxReplyBytes });
  cleanups.push(() => upstream.close());
  return upstream;
}

async function withNode(options: TestNodeOptions = {}) {
  const node = await startTestNode(options);
  cleanups.push(() => node.close());
  return { node, upstream: connect(node.url) };
}

/** A server that answers streams as the test says, be it gRPC or not. */
async function withServer(answer: (stream: ServerHttp2Stream) => void): Promise<GrpcUpstream> {
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

const call = (upstream: GrpcUpstream, timeoutMs = 5000) =>
  upstream.call(METHOD, NOTHING, { timeoutMs });

const GRPC = { ':status': 200, 'content-type': 'application/grpc' };

function reply(stream: ServerHttp2Stream, body: Buffer, trailers: Record<string, string>): void {
  stream.respond(GRPC, { waitForTrailers: true });
  stream.once('wantTrailers', () => stream.sendTrailers(trailers));
  stream.end(body);
}

describe.each(['grpc', 'grpcs'] as const)('over %s', (over) => {
  it('asks for the latest and for a height, and hears which it was', async () => {
    const { upstream } = await withNode({ over });
    expect(await call(upstream)).toMatchObject({ height: 100 });
    const reply = await upstream.call(METHOD, NOTHING, { height: 42, timeoutMs: 5000 });
    expect(reply).toMatchObject({ height: 42 });
    expect(reply.message.length).toBeGreaterThan(0);
  });

  it('tells how far the node is', async () => {
    const { upstream, node } = await withNode({ over });
    node.blocks.latest = 321;
    expect(await upstream.status(5000)).toMatchObject({ height: 321 });
  });
});

it('refuses a server whose certificate nobody vouches for', async () => {
  const { node } = await withNode({ over: 'grpcs' });
  const upstream = new GrpcUpstream({ url: new URL(node.url), maxReplyBytes: 1000 });
  cleanups.push(() => upstream.close());
  await expect(call(upstream)).rejects.toMatchObject({ code: GrpcCode.unavailable });
});

it('stops waiting at the deadline, and tells the node so', async () => {
  const { node, upstream } = await withNode();
  node.interrupt(() => new Promise(() => {}));
  await expect(call(upstream, 50)).rejects.toMatchObject({
    code: GrpcCode.deadlineExceeded,
    origin: 'transport',
  });
  node.interrupt();
  await expect(call(upstream)).resolves.toMatchObject({ height: 100 });
});

it('gives up when nobody waits', async () => {
  const { node, upstream } = await withNode();
  const arrived = Promise.withResolvers<void>();
  node.interrupt(() => {
    arrived.resolve();
    return new Promise(() => {});
  });
  const gone = new AbortController();
  const asked = upstream.call(METHOD, NOTHING, { timeoutMs: 5000, signal: gone.signal });
  await arrived.promise;
  gone.abort();
  await expect(asked).rejects.toMatchObject({ code: GrpcCode.cancelled });
});

it('reads an error that comes without a message, its text decoded', async () => {
  const upstream = await withServer((stream) => {
    const status = { 'grpc-status': '5', 'grpc-message': 'not f%C3%B6und: 100%25' };
    stream.respond({ ...GRPC, ...status }, { endStream: true });
  });
  await expect(call(upstream)).rejects.toMatchObject({
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
])('maps a reset by %s', async (_, reset, code) => {
  const upstream = await withServer((stream) => stream.close(reset));
  await expect(call(upstream)).rejects.toMatchObject({ code, origin: 'transport' });
});

it.each([
  [401, GrpcCode.unauthenticated],
  [403, GrpcCode.permissionDenied],
  [404, GrpcCode.unimplemented],
  [502, GrpcCode.unavailable],
  [503, GrpcCode.unavailable],
  [200, GrpcCode.unknown],
])('takes HTTP %i of a proxy for what it is', async (status, code) => {
  const upstream = await withServer((stream) => {
    stream.respond({ ':status': status, 'content-type': 'text/html' });
    stream.end('<html>');
  });
  await expect(call(upstream)).rejects.toMatchObject({ code, origin: 'transport' });
});

it('refuses replies over the limit, whatever they claim', async () => {
  const large = await withServer((stream) => {
    reply(stream, frameOf(Buffer.alloc(1001)), { 'grpc-status': '0' });
  });
  await expect(call(large)).rejects.toMatchObject({ code: GrpcCode.resourceExhausted });
  const exact = await withServer((stream) => {
    reply(stream, frameOf(Buffer.alloc(1000)), { 'grpc-status': '0' });
  });
  expect((await call(exact)).message).toHaveLength(1000);
});

it.each([
  ['compressed', Buffer.from([1, 0, 0, 0, 1, 7])],
  ['cut short', Buffer.from([0, 0, 0, 0, 9, 7])],
  ['missing', Buffer.alloc(0)],
  ['there twice', Buffer.concat([frameOf(Buffer.from('a')), frameOf(Buffer.from('b'))])],
])('refuses a message that is %s', async (_, body) => {
  const upstream = await withServer((stream) => reply(stream, body, { 'grpc-status': '0' }));
  await expect(call(upstream)).rejects.toMatchObject({ code: GrpcCode.internal });
});

it('puts a reply together from many pieces', async () => {
  const message = Buffer.from(Array.from({ length: 900 }, (_, i) => i % 256));
  const upstream = await withServer((stream) => {
    stream.respond(GRPC, { waitForTrailers: true });
    stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
    for (const byte of frameOf(message)) stream.write(Buffer.from([byte]));
    stream.end();
  });
  expect(Buffer.from((await call(upstream)).message).equals(message)).toBe(true);
});

it('hands many calls at a time to one connection', async () => {
  const { node, upstream } = await withNode();
  const replies = await Promise.all(Array.from({ length: 500 }, () => call(upstream)));
  expect(replies.every(({ height }) => height === 100)).toBe(true);
  expect(node.callsOf('ixo.entity.v1beta1.Query/Params')).toBe(500);
});

it('passes on metadata and the credentials of the address', async () => {
  const seen = Promise.withResolvers<Record<string, unknown>>();
  const server = createServer();
  server.on('stream', (stream, headers) => {
    seen.resolve(headers);
    reply(stream, frameOf(NOTHING), { 'grpc-status': '0' });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanups.push(() => server.close());
  const { port } = server.address() as AddressInfo;
  const upstream = connect(`grpc://ann:s%40fe@127.0.0.1:${port}`);
  await upstream.call(METHOD, NOTHING, { timeoutMs: 1500, metadata: { 'x-trace': 'abc' } });
  expect(await seen.promise).toMatchObject({
    ':path': METHOD,
    'grpc-timeout': '1500m',
    'x-trace': 'abc',
    authorization: `Basic ${Buffer.from('ann:s@fe').toString('base64')}`,
  });
});
