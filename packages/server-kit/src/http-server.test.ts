import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, expect, it, onTestFinished } from 'vitest';
import { HttpServer } from './http-server.js';

const HOST = '127.0.0.1';
const GET = 'GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';

const servers: HttpServer[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

function create(answer: (end: () => void) => void = (end) => end()): HttpServer {
  const server = new HttpServer({}, (_, response) => answer(() => response.end('answer')));
  servers.push(server);
  return server;
}

async function serve({ listeners }: { listeners?: number } = {}): Promise<HttpServer> {
  const server = create();
  await server.start({ port: 0, host: HOST }, listeners);
  return server;
}

const readPort = (server: HttpServer) => (server.address() as AddressInfo).port;

function open(server: HttpServer): Socket {
  const socket = connect({ port: readPort(server), host: HOST }).on('error', () => undefined);
  onTestFinished(() => void socket.destroy());
  return socket;
}

async function get(server: HttpServer): Promise<string> {
  const socket = open(server);
  socket.write(GET);
  return text(socket).catch(() => '');
}

const canShare = process.platform === 'linux';

/** How many turns of the event loop it takes to answer this many new connections. */
async function countTurns(server: HttpServer, connections: number): Promise<number> {
  let turns = 0;
  let isCounting = true;
  const count = () => {
    turns += 1;
    if (isCounting) setImmediate(count);
  };
  count();
  const replies = await Promise.all(Array.from({ length: connections }, () => get(server)));
  isCounting = false;
  expect(replies.every((reply) => reply.endsWith('answer'))).toBe(true);
  return turns;
}

it('HttpServer.start accepts many connections per turn of the event loop', async () => {
  const one = await countTurns(await serve({ listeners: 1 }), 300);
  const many = await countTurns(await serve(), 300);
  // Without this behavior of Node, HttpServer would need one socket only.
  expect(one).toBeGreaterThanOrEqual(300);
  if (canShare) expect(many).toBeLessThan(one / 3);
});

it.each(['HttpServer', 'another server'])(
  'HttpServer.start rejects a port on which %s listens',
  async (first) => {
    const taken = first === 'HttpServer' ? await serve() : createServer().listen(0, HOST);
    if (!taken.listening) await once(taken, 'listening');
    onTestFinished(() => void taken.close());
    const { port } = taken.address() as AddressInfo;
    await expect(create().start({ port, host: HOST })).rejects.toMatchObject({
      code: 'EADDRINUSE',
      message: `listen EADDRINUSE: address already in use ${HOST}:${port}`,
    });
  },
);

it('HttpServer.start rejects a port that several listen on at the same time, but for one', async () => {
  const { port } = (await serve()).address() as AddressInfo;
  servers.pop()?.close();
  const starts = Array.from({ length: 8 }, () => create().start({ port, host: HOST }));
  const results = await Promise.allSettled(starts);
  expect(results.filter(({ status }) => status === 'fulfilled').length).toBeLessThanOrEqual(1);
});

it('HttpServer.start uses one socket where a port cannot be shared', async () => {
  const server = await serve({ listeners: 1 });
  expect(await get(server)).toMatch(/answer$/);
  const { port } = server.address() as AddressInfo;
  await expect(create().start({ port, host: HOST }, 1)).rejects.toThrow(/EADDRINUSE/);
});

it('HttpServer limits the connections of all its sockets together', async () => {
  const server = await serve();
  server.maxConnections = 20;
  const sockets = Array.from({ length: 40 }, () => open(server));
  const closed = () => sockets.filter(({ readableEnded, destroyed }) => readableEnded || destroyed);
  for (const socket of sockets) socket.resume();
  await expect.poll(() => closed().length).toBe(20);
  expect(await get(server)).toBe('');
  for (const socket of sockets) socket.destroy();
  // The places of closed connections are free again.
  await expect.poll(() => get(server)).toMatch(/answer$/);
});

it('HttpServer.close waits for running requests on all its sockets, and frees the port', async () => {
  const endings: (() => void)[] = [];
  const server = create((end) => endings.push(end));
  await server.start({ port: 0, host: HOST });
  const port = readPort(server);
  const replies = Array.from({ length: 40 }, () => get(server));
  await expect.poll(() => endings.length).toBe(40);
  const ended: string[] = [];
  const closed = new Promise<void>((resolve) => server.close(() => resolve())).then(() =>
    ended.push('server'),
  );
  for (const end of endings) {
    await new Promise(setImmediate);
    expect(ended).toEqual([]);
    end();
  }
  for (const reply of replies) expect(await reply).toMatch(/answer$/);
  await closed;
  await create().start({ port, host: HOST });
});
