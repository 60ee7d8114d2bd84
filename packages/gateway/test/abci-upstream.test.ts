import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { GrpcCode } from '@sibyl/grpc-client';
import { afterEach, expect, it } from 'vitest';
import { startTestNode } from '../../demo-chain/test/support/test-node.js';
import { AbciUpstream } from '../src/upstream/abci-upstream.js';

const METHOD = '/ixo.entity.v1beta1.Query/Params';
const NOTHING = new Uint8Array();
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

function connect(url: string, maxReplyBytes = 1_000_000): AbciUpstream {
  const upstream = new AbciUpstream({ url: new URL(url), maxReplyBytes });
  cleanups.push(() => upstream.close());
  return upstream;
}

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

async function withServer(answer: Answer, maxReplyBytes?: number): Promise<AbciUpstream> {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanups.push(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return connect(`rpc+http://ann:secret@127.0.0.1:${port}/node`, maxReplyBytes);
}

const withResponse = (response: object) =>
  withServer((_, answer) => answer.end(JSON.stringify({ result: { response } })));

const call = (upstream: AbciUpstream, timeoutMs = 5000) =>
  upstream.call(METHOD, NOTHING, { timeoutMs });

it('AbciUpstream.call queries the latest and a given height', async () => {
  const node = await startTestNode({ over: 'rpc+http' });
  cleanups.push(() => node.close());
  const upstream = connect(node.url);
  expect(await call(upstream)).toMatchObject({ height: 100 });
  const reply = await upstream.call(METHOD, NOTHING, { height: 42, timeoutMs: 5000 });
  expect(reply.height).toBe(42);
  expect(reply.message.length).toBeGreaterThan(0);
  node.blocks.earliest = 7;
  expect(await upstream.status(5000)).toEqual({ height: 100, earliest: 7, isCatchingUp: false });
});

it('sends path, data, height and credentials as a node wants them', async () => {
  const seen = Promise.withResolvers<object>();
  const upstream = await withServer((request, response) => {
    void json(request).then((body) => {
      seen.resolve({ url: request.url, authorization: request.headers.authorization, body });
    });
    response.end(JSON.stringify({ result: { response: { value: 'aGk=', height: '9' } } }));
  });
  const request = Uint8Array.from([10, 3, 255]);
  const reply = await upstream.call(METHOD, request, { height: 9, timeoutMs: 5000 });
  expect(Buffer.from(reply.message).toString()).toBe('hi');
  expect(await seen.promise).toMatchObject({
    url: '/node',
    authorization: `Basic ${Buffer.from('ann:secret').toString('base64')}`,
    body: {
      jsonrpc: '2.0',
      method: 'abci_query',
      params: { path: METHOD, data: '0a03ff', height: '9', prove: false },
    },
  });
});

it.each([
  [6, 'unknown query path: unknown request', GrpcCode.unimplemented, undefined],
  [6, 'the log of a module: unknown request', GrpcCode.unknown, 'the log of a module'],
  [6, 'rpc error: code = Unknown desc = x: unknown request', GrpcCode.unknown, 'x'],
  [6, 'rpc error: code = Internal desc = x: unknown request', GrpcCode.internal, 'x'],
  [6, 'rpc error: code = Unimplemented desc = x: unknown request', GrpcCode.unimplemented, 'x'],
  [22, 'rpc error: code = NotFound desc = entity: key not found', GrpcCode.notFound, 'entity'],
  [22, 'no such contract: key not found', GrpcCode.notFound, 'no such contract'],
  [30, 'x: tx timeout height', GrpcCode.unknown, undefined],
  [
    18,
    'rpc error: code = InvalidArgument desc = x: invalid request',
    GrpcCode.invalidArgument,
    'x',
  ],
  [
    18,
    'rpc error: code = FailedPrecondition desc = x: invalid request',
    GrpcCode.failedPrecondition,
    'x',
  ],
  [
    18,
    'y: rpc error: code = InvalidArgument desc = x: invalid request',
    GrpcCode.invalidArgument,
    'y: rpc error: code = InvalidArgument desc = x',
  ],
  [18, 'a plain error: invalid request', GrpcCode.unknown, 'a plain error'],
  [18, 'failed to load state at height 2; x: invalid request', GrpcCode.unknown, undefined],
  [26, 'cannot query with height in the future: invalid height', GrpcCode.unknown, undefined],
  [38, 'failed to load state at height 2; x: not found', GrpcCode.unknown, undefined],
  [4, 'rpc error: code = Unauthenticated desc = x: unauthorized', GrpcCode.unauthenticated, 'x'],
])('toGrpcError has code and text of gRPC for code %i: %s', async (code, log, expected, text) => {
  const upstream = await withResponse({ code, codespace: 'sdk', log });
  const error = { code: expected, message: text ?? log, origin: 'node' };
  await expect(call(upstream)).rejects.toMatchObject(error);
});

it('toGrpcError reads a panic, and codes of other codespaces', async () => {
  const panic = await withResponse({ code: 111222, codespace: 'undefined', log: 'nil: panic' });
  await expect(call(panic)).rejects.toMatchObject({ code: GrpcCode.internal, message: 'nil' });
  const other = await withResponse({ code: 2, codespace: 'bonds', log: 'a module error' });
  await expect(call(other)).rejects.toMatchObject({ code: GrpcCode.unknown });
});

it('AbciUpstream.call reads an empty value as an empty message', async () => {
  const upstream = await withResponse({ code: 0, value: null, height: '5' });
  expect(await call(upstream)).toEqual({ message: Buffer.alloc(0), height: 5 });
});

it.each([
  ['a JSON-RPC error', 200, { error: { code: -32603, message: 'Internal error', data: 'x' } }, 13],
  ['an unknown method', 200, { error: { code: -32601, message: 'Method not found' } }, 12],
  ['an error with its status', 500, { error: { code: -32603, message: 'Internal error' } }, 13],
  ['another shape', 200, { result: { answer: 42 } }, 13],
  ['the page of a proxy', 502, 'Bad Gateway', 14],
])('understands %s', async (_, status, body, code) => {
  const upstream = await withServer((__, response) => {
    response.writeHead(status).end(JSON.stringify(body));
  });
  await expect(call(upstream)).rejects.toMatchObject({ code });
});

/** A server that answers any calls, and the number of calls in each request. */
async function withBatches(
  answer: (calls: { id: number; params: object }[]) => object,
  maxReplyBytes = 1000,
) {
  const sizes: number[] = [];
  const upstream = await withServer((request, response) => {
    void json(request).then((body) => {
      const calls = Array.isArray(body) ? body : [body];
      sizes.push(calls.length);
      const replies = answer(calls) as object[];
      response.end(JSON.stringify(Array.isArray(body) ? replies : replies[0]));
    });
  }, maxReplyBytes);
  return { upstream, sizes };
}

const reply = (id: number, text: string) => {
  const value = Buffer.from(text).toString('base64');
  return { jsonrpc: '2.0', id, result: { response: { code: 0, value, height: '9' } } };
};

it('JsonRpc sends calls of one turn together, and gives each its own reply in any order', async () => {
  const { upstream, sizes } = await withBatches((calls) =>
    calls.map(({ id, params }) => reply(id, (params as { data: string }).data)).reverse(),
  );
  const replies = await Promise.all(
    Array.from({ length: 23 }, (_, i) =>
      upstream.call(METHOD, Uint8Array.of(i), { timeoutMs: 5000 }),
    ),
  );
  const texts = replies.map(({ message }) => Buffer.from(message).toString());
  expect(texts).toEqual(Array.from({ length: 23 }, (_, i) => i.toString(16).padStart(2, '0')));
  expect(sizes.sort()).toEqual([10, 10, 3]);
});

it('JsonRpc sends calls one by one to a node that does not accept several', async () => {
  const node = await startTestNode({ over: 'rpc+http', rpc: { maxBatch: 1 } });
  cleanups.push(() => node.close());
  const upstream = connect(node.url);
  for (let i = 0; i < 2; i += 1) {
    const replies = await Promise.all(Array.from({ length: 5 }, () => call(upstream)));
    expect(replies.map(({ height }) => height)).toEqual([100, 100, 100, 100, 100]);
  }
});

it('JsonRpc fails only the call of a request that fails, times out or is too large', async () => {
  const { upstream, sizes } = await withBatches((calls) =>
    calls.map(({ id, params }) => {
      const { data } = params as { data: string };
      if (data === '01') return { id, error: { code: -32603, message: 'Internal error' } };
      return reply(id, data === '02' ? 'x'.repeat(30_000) : data);
    }),
  );
  const outcomes = await Promise.allSettled(
    [0, 1, 2, 3].map((i) => upstream.call(METHOD, Uint8Array.of(i), { timeoutMs: 5000 })),
  );
  expect(outcomes.map(({ status }) => status)).toEqual([
    'fulfilled',
    'rejected',
    'rejected',
    'fulfilled',
  ]);
  expect(sizes).toEqual([4, 1, 1, 1, 1]);
});

it('JsonRpc keeps the limit of a reply in a request with other calls', async () => {
  const { upstream, sizes } = await withBatches((calls) =>
    calls.map(({ id }) => reply(id, 'x'.repeat(id === 1 ? 3000 : 10))),
  );
  const outcomes = await Promise.allSettled([0, 1, 2].map(() => call(upstream)));
  expect(outcomes).toMatchObject([
    { status: 'fulfilled' },
    { status: 'rejected', reason: { code: GrpcCode.resourceExhausted } },
    { status: 'fulfilled' },
  ]);
  expect(sizes).toEqual([3]);
});

it('JsonRpc reads replies of more than 8 MB together one at a time', async () => {
  const text = 'x'.repeat(2_200_000);
  const { upstream, sizes } = await withBatches(
    (calls) => calls.map(({ id }) => reply(id, text)),
    3_000_000,
  );
  const replies = await Promise.all([call(upstream), call(upstream), call(upstream)]);
  expect(replies.map(({ message }) => message.length)).toEqual([2_200_000, 2_200_000, 2_200_000]);
  expect(sizes).toEqual([3, 1, 1, 1]);
});

it('JsonRpc sends calls together again after a proxy was busy', async () => {
  const sizes: number[] = [];
  let isBusy = true;
  const upstream = await withServer((request, response) => {
    void json(request).then((body) => {
      const calls = body as { id: number }[];
      sizes.push(calls.length);
      if (isBusy) response.writeHead(503).end('<html>busy</html>');
      else response.end(JSON.stringify(calls.map(({ id }) => reply(id, 'x'))));
    });
  });
  const callThree = () => Promise.allSettled([0, 1, 2].map(() => call(upstream)));
  const refused = { status: 'rejected', reason: { code: GrpcCode.unavailable } };
  expect(await callThree()).toMatchObject([refused, refused, refused]);
  isBusy = false;
  expect((await callThree()).map(({ status }) => status)).not.toContain('rejected');
  expect(sizes).toEqual([3, 3]);
});

it('keeps to deadline and size', async () => {
  const silent = await withServer(() => {});
  await expect(call(silent, 50)).rejects.toMatchObject({ code: GrpcCode.deadlineExceeded });
  const response = { code: 0, value: Buffer.alloc(20_000).toString('base64') };
  const large = await withServer(
    (_, answer) => answer.end(JSON.stringify({ result: { response } })),
    1000,
  );
  await expect(call(large)).rejects.toMatchObject({ code: GrpcCode.resourceExhausted });
});

it('AbciUpstream.call reports an unreachable node', async () => {
  const node = await startTestNode({ over: 'rpc+http' });
  await node.close();
  const expected = { code: GrpcCode.unavailable, origin: 'transport' };
  await expect(call(connect(node.url))).rejects.toMatchObject(expected);
});
