import { once } from 'node:events';
import type { Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Response } from 'express';
import { afterEach, expect, it } from 'vitest';
import { HttpAdapter, REQUEST_TIMEOUTS } from './express.js';

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

/** Serves with short timeouts; a response takes longer than all of them. */
async function serve(): Promise<number> {
  const adapter = new HttpAdapter(
    { stallMs: 1_000, onError: () => undefined },
    { headers: 1_000, request: 1_500, checkInterval: 50 },
  );
  adapter.initHttpServer();
  adapter.post('/body', (request: AsyncIterable<Buffer>, response: { end(body: string): void }) => {
    void text(request).then(
      (body) => response.end(body),
      () => undefined,
    );
  });
  adapter.post('/early', (_: unknown, response: { write(part: string): void }) => {
    response.write('first part');
  });
  adapter.get('/slow', (_: unknown, response: { write(part: string): void; end(): void }) => {
    response.write('first part');
    setTimeout(() => response.end(), 2_500);
  });
  const large = 'x'.repeat(20_000_000);
  adapter.get('/reply', (_: unknown, response: Response) => {
    adapter.reply(response, { text: large }, 200);
  });
  adapter.get('/json', (_: unknown, response: Response) => void response.json({ text: large }));
  adapter.get('/end', (_: unknown, response: Response) => void response.end(large));
  adapter.get('/parts', (_: unknown, response: Response) => {
    response.write('first part');
    response.end(large);
  });
  server = adapter.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

/** Keeps its own side open, as a client does that wants to hold the connection. */
async function send(port: number, head: string): Promise<{ answer: string; socket: Socket }> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  socket.write(head);
  return { answer: await text(socket), socket };
}

it('HttpAdapter ends slow headers within 10 seconds and slow bodies within 30', () => {
  const { headers, request, checkInterval } = REQUEST_TIMEOUTS;
  expect(headers + checkInterval).toBeLessThanOrEqual(10_000);
  expect(request + checkInterval).toBeLessThanOrEqual(30_000);
});

it.each([
  ['headers', 'POST /body HTTP/1.1\r\nHost: x\r\nX-Slow: '],
  ['a body', 'POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc'],
])(
  'HttpAdapter answers 408 to %s that does not arrive, and closes the connection',
  async (_, head) => {
    const port = await serve();
    const { answer } = await send(port, head);
    expect(answer).toMatch(/^HTTP\/1\.1 408 /);
    expect(JSON.parse(answer.split('\r\n\r\n')[1] ?? '')).toMatchObject({
      code: 'request_timeout',
    });
    await expect
      .poll(() => new Promise((resolve) => server?.getConnections((__, count) => resolve(count))))
      .toBe(0);
  },
);

it.each([
  ['with its headers', 'POST /body HTTP/1.1\r\nHost: x\r\n', 'Content-Length: 3\r\n\r\nabc'],
  ['with its body', 'POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc', 'def'],
])(
  'HttpAdapter answers a request that waited %s while the host stood still',
  async (_, head, rest) => {
    const port = await serve();
    const socket = connect({ port, host: '127.0.0.1' });
    socket.write(head);
    await sleep(200);
    // After sockets were read and before timers, such as the check of connections.
    setImmediate(() => {
      socket.write(rest);
      const end = performance.now() + 2_000;
      while (performance.now() < end);
    });
    const [answer] = await once(socket.setEncoding('utf8'), 'data');
    socket.destroy();
    expect(answer).toMatch(/^HTTP\/1\.1 200 /);
  },
);

it('HttpAdapter writes no second response into one that has begun', async () => {
  const port = await serve();
  const { answer } = await send(
    port,
    'POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc',
  ).catch((error: Error) => ({ answer: String(error) }));
  expect(answer).not.toContain('408');
});

it.each(['', 'Expect: something\r\n'])(
  'HttpAdapter writes no 400 into the response to a request with the headers "%s"',
  async (expects) => {
    const port = await serve();
    const socket = connect({ port, host: '127.0.0.1' });
    let answer = '';
    socket.on('data', (data) => {
      answer += data;
    });
    socket.on('error', () => undefined);
    socket.write(`GET /slow HTTP/1.1\r\nHost: x\r\n${expects}\r\n`);
    await expect.poll(() => answer).toContain('first part');
    const closed = once(socket, 'close');
    socket.write('not HTTP\r\n\r\n');
    await closed;
    expect(answer).not.toContain('400');
  },
);

it('HttpAdapter allows a response to take longer than every timeout', async () => {
  const port = await serve();
  const { answer } = await send(port, 'GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
  expect(answer).toContain('first part');
  expect(answer).toMatch(/\r\n0\r\n\r\n$/);
});

it.each(['reply', 'json', 'end', 'parts'])(
  'HttpAdapter disconnects a client that does not read its response: %s',
  async (path) => {
    const port = await serve();
    const socket = connect({ port, host: '127.0.0.1' });
    socket.on('error', () => undefined);
    socket.write(`GET /${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
    await once(socket, 'readable');
    // Nothing more is read.
    const count = () =>
      new Promise<number>((resolve) => server?.getConnections((_, open) => resolve(open)));
    expect(await count()).toBe(1);
    await expect.poll(count, { timeout: 10_000 }).toBe(0);
    socket.destroy();
  },
);

it('HttpAdapter keeps a client that reads its response slowly', async () => {
  const port = await serve();
  const socket = connect({ port, host: '127.0.0.1' });
  socket.write('GET /json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
  let length = 0;
  for await (const part of socket) {
    length += part.length;
    // Takes longer than the limit in total.
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  expect(length).toBeGreaterThan(20_000_000);
});

it('HttpAdapter accepts a limited number of connections', async () => {
  await serve();
  expect(server?.maxConnections).toBe(20_000);
});
