import type { Client, ServiceError } from '@grpc/grpc-js';
import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import { afterEach, expect, it } from 'vitest';
import { callByGrpcJs, createGrpcJsClient } from '../test/support/grpc-js-call.js';
import { LOCALHOST_TLS } from '../test/support/localhost-tls.js';
import {
  type GrpcServer,
  type GrpcServerOptions,
  type Query,
  startGrpcServer,
} from './grpc-server.js';

const METHOD = 'some.v1.Query/Thing';
const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function serve(options: GrpcServerOptions): Promise<{ server: GrpcServer; client: Client }> {
  const server = await startGrpcServer(options);
  cleanups.push(() => server.close());
  const client = createGrpcJsClient(server.url);
  cleanups.push(() => client.close());
  return { server, client };
}

const echo = ({ request, height }: Query) => ({ message: request, height });

it.each([
  ['plaintext', {}],
  ['TLS', { tls: LOCALHOST_TLS }],
])('startGrpcServer answers over %s with message and height', async (_, options) => {
  const { client } = await serve({ answer: echo, ...options });
  for (const length of [0, 1, 70_000, 3_000_000]) {
    const request = Buffer.alloc(length, 7);
    const height = { 'x-cosmos-block-height': String(length + 1) };
    const { message, headers } = await callByGrpcJs(client, METHOD, request, height);
    expect(message.equals(request)).toBe(true);
    expect(headers).toMatchObject(height);
  }
});

it('startGrpcServer sends the code and text of an error, with and without a height', async () => {
  const text = 'nicht gefunden: 100 % "ä" \n🜁';
  for (const height of [undefined, 12]) {
    const error = new GrpcError(GrpcCode.notFound, text);
    const { client } = await serve({ answer: () => ({ error, height }) });
    const failure: ServiceError = await callByGrpcJs(client, METHOD, Buffer.alloc(0)).then(
      () => expect.fail('answered'),
      (reason) => reason,
    );
    expect(failure).toMatchObject({ code: 5, details: text });
  }
});

it('startGrpcServer reports what a handler throws', async () => {
  const thrown = new GrpcError(GrpcCode.unavailable, 'not now');
  const { client } = await serve({
    answer({ method }) {
      throw method === METHOD ? thrown : new Error('broken');
    },
  });
  await expect(callByGrpcJs(client, METHOD, Buffer.alloc(0))).rejects.toMatchObject({
    code: 14,
    details: 'not now',
  });
  await expect(callByGrpcJs(client, 'a.B/C', Buffer.alloc(0))).rejects.toMatchObject({ code: 2 });
});

it('startGrpcServer rejects an invalid height', async () => {
  const { client } = await serve({ answer: echo });
  const call = callByGrpcJs(client, METHOD, Buffer.alloc(0), { 'x-cosmos-block-height': '-1' });
  await expect(call).rejects.toMatchObject({ code: 3 });
});

it('GrpcServer.goAway finishes running calls', async () => {
  const gate = Promise.withResolvers<void>();
  const arrived = Promise.withResolvers<void>();
  const { server, client } = await serve({
    async answer(query) {
      arrived.resolve();
      await gate.promise;
      return echo(query);
    },
  });
  const call = callByGrpcJs(client, METHOD, Buffer.from('running'));
  await arrived.promise;
  server.goAway();
  gate.resolve();
  expect((await call).message.toString()).toBe('running');
  expect((await callByGrpcJs(client, METHOD, Buffer.from('next'))).message.toString()).toBe('next');
});

it('GrpcServer.dropConnections drops running calls and accepts new connections', async () => {
  const arrived = Promise.withResolvers<void>();
  const { server, client } = await serve({
    answer(query) {
      arrived.resolve();
      return query.request.length > 0 ? echo(query) : new Promise(() => {});
    },
  });
  const call = callByGrpcJs(client, METHOD, Buffer.alloc(0));
  await arrived.promise;
  server.dropConnections();
  await expect(call).rejects.toMatchObject({ code: expect.any(Number) });
  expect((await callByGrpcJs(client, METHOD, Buffer.from('again'))).message.toString()).toBe(
    'again',
  );
});
