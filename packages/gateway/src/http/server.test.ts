import { afterEach, expect, it } from 'vitest';
import { createHttpServer, listen } from './server.js';

const closers: (() => void)[] = [];

afterEach(() => {
  for (const close of closers.splice(0)) close();
});

function createServer(requestTimeoutMs: number) {
  const server = createHttpServer((_, response) => void response.end(), {
    requestTimeoutMs,
    answerTimeoutMs: 15_000,
  });
  closers.push(() => server.close());
  return server;
}

it('createHttpServer gives headers ten seconds, and looks for slow ones every second', () => {
  const server = createServer(60_000);
  expect(server.headersTimeout).toBe(10_000);
  expect(server.requestTimeout).toBe(60_000);
  expect(createServer(2000).headersTimeout).toBe(2000);
  expect(server.timeout).toBe(76_000);
  expect(server.maxConnections).toBe(10_000);
});

it('listen resolves to the URL of a server that answers', async () => {
  const url = await listen(createServer(1000), 0, '127.0.0.1');
  expect((await fetch(url)).status).toBe(200);
});
