import { once } from 'node:events';
import { request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { startHost, type TestHost } from './support/host.js';
import { openSession } from './support/stream.js';
import { TestUser } from './support/user.js';

const KB = 1024;

let host: TestHost;
let alice: TestUser;
let sockets: Socket[];
beforeEach(async () => {
  // One body is at most 64 kB, one address sends at most 64 kB, all addresses together 256 kB.
  host = await startHost({
    env: { BODY_LIMIT: '64kb', BODIES_LIMIT: '256kb', TRUST_PROXY: 'loopback' },
  });
  alice = new TestUser(host);
  sockets = [];
});
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await host.close();
});

/** Sends `sent` bytes of a body and does not finish it. */
async function begin(address: string, sent: number): Promise<Socket> {
  const { port, hostname } = new URL(host.url);
  const socket = connect(Number(port), hostname);
  sockets.push(socket);
  const headers = {
    host: 'x',
    ...alice.headers,
    'content-type': 'application/json',
    'x-forwarded-for': address,
    'transfer-encoding': 'chunked',
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  socket.write(`POST /sessions HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
  const body = `{"title":"${'x'.repeat(sent - 10)}`;
  socket.write(`${body.length.toString(16)}\r\n${body}\r\n`);
  await once(socket, 'ready');
  return socket;
}

async function createFrom(address: string, bytes = 0) {
  const response = await fetch(`${host.url}/sessions`, {
    method: 'POST',
    headers: {
      ...alice.headers,
      'content-type': 'application/json',
      'x-forwarded-for': address,
    },
    body: `{"title":"x"${' '.repeat(bytes)}}`,
  });
  return { status: response.status, headers: response.headers, body: await response.json() };
}

describe('POST bodies that are being read', () => {
  it('of one address use at most its share; others are served', async () => {
    await begin('203.0.113.1', 40 * KB);
    await expect
      .poll(async () => (await createFrom('203.0.113.1', 30 * KB)).body)
      .toMatchObject({ statusCode: 429, code: 'too_many_bodies' });
    expect((await createFrom('203.0.113.1')).status).toBe(201);
    expect((await createFrom('203.0.113.2', 30 * KB)).status).toBe(201);
  });

  it('of all addresses use at most BODIES_LIMIT, and release it when they end', async () => {
    for (let i = 1; i <= 4; i++) await begin(`203.0.113.${i}`, 60 * KB);
    await expect
      .poll(async () => (await createFrom('203.0.113.9', 30 * KB)).body)
      .toMatchObject({ statusCode: 503, code: 'bodies_too_large' });
    expect((await createFrom('203.0.113.9', 30 * KB)).headers.get('retry-after')).toBe('1');
    for (const socket of sockets) socket.destroy();
    await expect.poll(async () => (await createFrom('203.0.113.9', 30 * KB)).status).toBe(201);
  });

  it('of sequential requests never use it up', async () => {
    for (let i = 0; i < 40; i++)
      expect((await createFrom('203.0.113.1', 60 * KB)).status).toBe(201);
  });
});

describe('BodyInterceptor with an invalid body', () => {
  it('responds while the body is sent, and closes the connection', async () => {
    const socket = await begin('203.0.113.1', 65 * KB);
    const answer = await text(socket);
    expect(answer).toMatch(/^HTTP\/1\.1 413 /);
    expect(answer).toMatch(/^connection: close\r$/im);
  });

  it.each([
    ['latin-1', 'application/json; charset=iso-8859-1', '{}', 415],
    ['no UTF-8', 'application/json', Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d]), 400],
    ['a BOM', 'application/json; charset="UTF-8"', '\ufeff{}', 201],
    ['a bare value', 'application/json', '5', 400],
    ['nothing', 'application/json', '', 201],
  ])('responds by content: %s', async (_, type, body, status) => {
    const headers = { ...alice.headers, 'content-type': type };
    const response = await fetch(`${host.url}/sessions`, { method: 'POST', headers, body });
    expect([response.status, await response.text()]).toEqual([status, expect.any(String)]);
  });
});

it('a body of GET /sessions is not read', async () => {
  await openSession(alice);
  const { port, hostname } = new URL(host.url);
  const socket = connect(Number(port), hostname);
  const lines = Object.entries({ ...alice.headers, host: 'x', connection: 'close' });
  const head = lines.map(([name, value]) => `${name}: ${value}`).join('\r\n');
  const body = 'not JSON';
  socket.write(
    `GET /sessions HTTP/1.1\r\n${head}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
  expect(await text(socket)).toMatch(/^HTTP\/1\.1 200 /);
});

it.each(['/me/import', '/files?name=a.txt'])(
  'POST %s ends a body that arrives too slowly: it would occupy the place of others',
  async (path) => {
    const passed = performance.now.bind(performance);
    let skippedMs = 0;
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => passed() + skippedMs);
    onTestFinished(() => clock.mockRestore());
    const headers = { ...alice.headers, 'content-type': 'application/octet-stream' };
    let status: number | undefined;
    const sent = request(host.url + path, { method: 'POST', headers });
    sent.on('error', () => undefined);
    sent.on('response', (response) => {
      status = response.resume().statusCode;
    });
    const sendSlowly = () => {
      skippedMs += 20_000;
      sent.write('x');
      return status;
    };
    await expect.poll(sendSlowly).toBe(408);
    sent.destroy();
  },
);

const FORM = '--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n';

it.each([
  ['/sessions', 'application/json', 413, ''],
  ['/files?name=a.txt', 'application/octet-stream', 400, ''],
  ['/files', 'multipart/form-data; boundary=b', 400, FORM],
  ['/files', 'multipart/form-data; boundary=b', 400, ''],
  ['/me/import', 'application/zip', 400, ''],
])(
  'POST %s of %s refuses a body in tiny chunks before its end',
  async (path, type, status, start) => {
    const { port, hostname } = new URL(host.url);
    const socket = connect(Number(port), hostname);
    sockets.push(socket);
    const headers = { host: 'x', ...alice.headers, 'content-type': type };
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.write(`POST ${path} HTTP/1.1\r\n${lines.join('')}transfer-encoding: chunked\r\n\r\n`);
    if (start !== '') socket.write(`${start.length.toString(16)}\r\n${start}\r\n`);
    socket.write('1\r\n \r\n'.repeat(5000));
    const answer = await text(socket);
    expect(answer).toContain(`HTTP/1.1 ${status} `);
    expect(answer).toContain('too many small chunks');
    expect(answer).toMatch(/^connection: close\r$/im);
  },
);

it('a client that leaves while its body arrives is not reported as a failure of the store', async () => {
  const socket = await begin('10.0.0.1', 1 * KB);
  await alice.request('GET', '/sessions');
  socket.destroy();
  const isAborted = ({ msg }: Record<string, unknown>) => msg === 'request aborted';
  await expect.poll(() => host.log.some(isAborted)).toBe(true);
  await alice.request('GET', '/sessions');
  expect(host.log.filter(({ code }) => code === 'store_unavailable')).toEqual([]);
});
