import { createServer } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { encodeMessage } from '@sibyl/grpc-client';
import { afterEach, expect, it } from 'vitest';
import { startTestNode } from '../../demo-chain/test/support/test-node.js';
import { GrpcUpstream } from '../src/upstream/grpc-upstream.js';

const METHOD = '/ixo.entity.v1beta1.Query/Params';
const NOTHING = new Uint8Array();
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

function connect(url: string): GrpcUpstream {
  const upstream = new GrpcUpstream({ url: new URL(url), maxReplyBytes: 1000 });
  cleanups.push(() => upstream.close());
  return upstream;
}

it('GrpcUpstream.call sends the height and reads the height of the reply', async () => {
  const node = await startTestNode();
  cleanups.push(() => node.close());
  const upstream = connect(node.url);
  expect(await upstream.call(METHOD, NOTHING, { timeoutMs: 5000 })).toMatchObject({ height: 100 });
  const reply = await upstream.call(METHOD, NOTHING, { height: 42, timeoutMs: 5000 });
  expect(reply).toMatchObject({ height: 42 });
});

it('GrpcUpstream.status reads the height of the node', async () => {
  const node = await startTestNode();
  cleanups.push(() => node.close());
  node.blocks.latest = 321;
  expect(await connect(node.url).status(5000)).toMatchObject({ height: 321 });
});

it('GrpcUpstream.call sends metadata and the credentials of the address', async () => {
  const seen = Promise.withResolvers<Record<string, unknown>>();
  const server = createServer();
  server.on('stream', (stream, headers) => {
    seen.resolve(headers);
    stream.respond({ 'content-type': 'application/grpc' }, { waitForTrailers: true });
    stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
    stream.end(encodeMessage(NOTHING));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanups.push(() => server.close());
  const { port } = server.address() as AddressInfo;
  const upstream = connect(`grpc://ann:s%40fe@127.0.0.1:${port}`);
  await upstream.call(METHOD, NOTHING, { timeoutMs: 1500, metadata: { 'x-trace': 'abc' } });
  expect(await seen.promise).toMatchObject({
    'x-trace': 'abc',
    authorization: `Basic ${Buffer.from('ann:s@fe').toString('base64')}`,
  });
});
