import { once } from 'node:events';
import { createServer, request as httpRequest } from 'node:http';
import type { AddressInfo, Socket as TcpSocket } from 'node:net';
import { generateSigner, mintAuthInvocation } from '@sibyl/ucan';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { emitter, routedSteps } from './support/emitter.js';
import { startHost, type TestHost, type TestHostOptions } from './support/host.js';
import {
  joinSession,
  openRejectedSocket,
  openSocket,
  type SessionSocket,
} from './support/session-socket.js';
import { openSession } from './support/stream.js';
import { usedMemory } from './support/used-memory.js';
import { TestUser } from './support/user.js';

let host: TestHost;
afterEach(() => host.close());

async function start(env: Record<string, string> = {}, options: TestHostOptions = {}) {
  host = await startHost({ ...options, env });
  const alice = new TestUser(host);
  return { alice, sessionId: await openSession(alice) };
}

const auth = (user: TestUser) => ({ invocation: user.mint() });

/** The status a handshake is answered with before there is any socket. */
function fetchStatus(
  headers: Record<string, string>,
  transport: 'polling' | 'websocket',
  query = '',
) {
  const url = `${host.url}/socket.io/?EIO=4&transport=${transport}${query}`;
  const upgrade = {
    connection: 'Upgrade',
    upgrade: 'websocket',
    'sec-websocket-version': '13',
    'sec-websocket-key': Buffer.alloc(16).toString('base64'),
  };
  const sent = httpRequest(url, {
    headers: { ...headers, ...(transport === 'websocket' && upgrade) },
  });
  return new Promise<number | undefined>((resolve, reject) => {
    sent.on('response', (response) => resolve(response.resume().statusCode));
    sent.on('upgrade', ({ statusCode }, socket) => {
      socket.destroy();
      resolve(statusCode);
    });
    sent.on('error', reject).end();
  });
}

describe('ConnectionRegistry limits sockets', () => {
  it('by user', async () => {
    const { alice, sessionId } = await start({ SOCKETS_PER_USER: '2' });
    const other = await openSession(alice);
    const first = await joinSession(alice, sessionId);
    await joinSession(alice, other);
    const query = { sessionId };
    const refusal = await openRejectedSocket(host.url, { query, auth: auth(alice) });
    expect(refusal.data).toMatchObject({ statusCode: 429, code: 'too_many_sockets' });
    const bob = new TestUser(host);
    await joinSession(bob, await openSession(bob));
    first.socket.disconnect();
    await expect
      .poll(async () => (await openOnce(alice, sessionId))?.code ?? 'let in')
      .toBe('let in');
  });

  it('by address, before authentication', async () => {
    const { alice, sessionId } = await start({ SOCKETS_PER_ADDRESS: '2' });
    const first = await joinSession(alice, sessionId);
    await joinSession(alice, sessionId);
    // Engine.IO opens a connection for each of them.
    for (const transport of ['polling', 'websocket'] as const)
      for (const query of ['', '&sid=', '&sid=x&sid='])
        expect(await fetchStatus({}, transport, query)).toBe(429);
    first.socket.disconnect();
    await expect.poll(() => fetchStatus({}, 'websocket')).toBe(101);
  });

  it('in total by SOCKETS_MAX, also concurrent ones', async () => {
    const { alice, sessionId } = await start({ SOCKETS_MAX: '3' });
    const options = { query: { sessionId }, auth: auth(alice), reconnection: false };
    const sockets = Array.from({ length: 30 }, () => openSocket(host.url, options));
    const outcomes = await Promise.all(
      sockets.map((socket) =>
        Promise.race([
          socket.until('connected').then(() => 'connected'),
          socket.until('(connect_error)').then(() => 'refused'),
        ]),
      ),
    );
    expect(outcomes.filter((outcome) => outcome === 'connected')).toHaveLength(3);
    for (const transport of ['polling', 'websocket'] as const)
      expect(await fetchStatus({}, transport)).toBe(503);
    for (const { socket } of sockets) socket.disconnect();
    await expect.poll(() => fetchStatus({}, 'websocket')).toBe(101);
  });

  it('by the address that a trusted proxy sends', async () => {
    const { alice, sessionId } = await start({ SOCKETS_PER_ADDRESS: '1', TRUST_PROXY: 'loopback' });
    const from = (address: string) => ({ 'x-forwarded-for': address });
    await joinSession(alice, sessionId, { extraHeaders: from('203.0.113.1') });
    expect(await fetchStatus(from('203.0.113.1'), 'websocket')).toBe(429);
    expect(await fetchStatus(from('203.0.113.2'), 'websocket')).toBe(101);
  });
});

/** Tries once; returns why it was refused, if it was. */
async function openOnce(user: TestUser, sessionId: string) {
  const options = { query: { sessionId }, auth: auth(user), reconnection: false };
  const socket = openSocket(host.url, options);
  const refused = socket.until('(connect_error)').then(({ data }) => data);
  return Promise.race([refused, socket.until('connected').then(() => undefined)]);
}

describe('failed handshakes', () => {
  it('count against their address, while valid callers of it are accepted', async () => {
    const { alice, sessionId } = await start({ RATE_LIMIT_ANONYMOUS_PER_MINUTE: '3' });
    const query = { sessionId };
    const attempt = async () =>
      (await openRejectedSocket(host.url, { query, auth: { invocation: 'AAAA' } })).data.code;
    await expect.poll(attempt, { interval: 1 }).toBe('rate_limited');
    await joinSession(alice, sessionId);
  });

  it('of a disconnected client leave no state', async () => {
    const held: (() => void)[] = [];
    const chain = createServer((_, response) => {
      held.push(() => response.writeHead(404).end('{}'));
    });
    chain.listen(0, '127.0.0.1');
    await once(chain, 'listening');
    const { port } = chain.address() as AddressInfo;
    const { alice, sessionId } = await start({
      CHAIN_REST_URL: `http://127.0.0.1:${port}`,
      SOCKETS_PER_ADDRESS: '1',
    });
    const signer = generateSigner().withDid('did:ixo:entity:1').ok ?? generateSigner();
    const invocation = mintAuthInvocation({ signer, audience: host.did }).ok?.token;
    const leaver = openSocket(host.url, {
      query: { sessionId },
      auth: { invocation },
      reconnection: false,
    });
    await expect.poll(() => held.length).toBeGreaterThan(0);
    leaver.socket.disconnect();
    // The address has room again although the answer of the chain is still out.
    await expect
      .poll(async () => (await openOnce(alice, sessionId))?.code ?? 'let in')
      .toBe('let in');
    for (const release of held) release();
    chain.close();
  });

  it('of a caller that disconnects during authentication are not counted as sockets', async () => {
    const { alice, sessionId } = await start({ SOCKETS_PER_USER: '1' });
    for (let i = 0; i < 20; i++) {
      const options = { query: { sessionId }, auth: auth(alice), reconnection: false };
      const leaver = openSocket(host.url, options);
      // Its question is on the wire, its answer is not.
      leaver.socket.io.on('open', () => setImmediate(() => leaver.dropNetwork()));
      await expect.poll(() => leaver.socket.io.engine?.readyState).toBe('closed');
    }
    await expect
      .poll(async () => (await openOnce(alice, sessionId))?.code ?? 'let in')
      .toBe('let in');
  });
});

describe('a socket of another origin', () => {
  it('may connect by default', async () => {
    await start();
    expect(await fetchStatus({ origin: 'https://anywhere.example' }, 'websocket')).toBe(101);
  });

  it.each(['polling', 'websocket'] as const)('is answered 403, by %s', async (transport) => {
    await start({ CORS_ORIGIN: 'https://chat.example' });
    const ok = transport === 'websocket' ? 101 : 200;
    expect(await fetchStatus({ origin: 'https://evil.example' }, transport)).toBe(403);
    expect(await fetchStatus({ origin: 'null' }, transport)).toBe(403);
    expect(await fetchStatus({ origin: 'https://chat.example' }, transport)).toBe(ok);
    expect(await fetchStatus({ origin: new URL(host.url).origin }, transport)).toBe(ok);
    expect(await fetchStatus({}, transport)).toBe(ok);
  });
});

describe('a socket that sends', () => {
  it('more than SOCKET_MESSAGE_LIMIT is disconnected, and can reconnect', async () => {
    const { alice, sessionId } = await start({ SOCKET_MESSAGE_LIMIT: '64kb' });
    const socket = await joinSession(alice, sessionId, { reconnectionDelay: 10 });
    socket.socket.emit('tool_result', { toolCallId: 'x', result: 'y'.repeat(60 * 1024) });
    await socket.ask('ping', 'pong');
    socket.socket.emit('tool_result', { toolCallId: 'x', result: 'y'.repeat(70 * 1024) });
    await socket.until('(disconnect)');
    await expect.poll(() => socket.all('connected').length).toBe(2);
  });

  it('too often receives closing and is disconnected', async () => {
    const { alice, sessionId } = await start({ RATE_LIMIT_PER_MINUTE: '20' });
    const socket = await joinSession(alice, sessionId);
    for (let i = 0; i < 50; i++) socket.socket.emit('ping');
    expect(await socket.until('(disconnect)')).toBe('io server disconnect');
    expect(socket.all('closing')).toMatchObject([{ reason: 'rate_limited' }]);
    expect(socket.all('pong').length).toBeLessThan(50);
  });

  it('large events is charged by their size', async () => {
    const { alice, sessionId } = await start({ RATE_LIMIT_PER_MINUTE: '100' });
    const socket = await joinSession(alice, sessionId, { reconnection: false });
    const result = 'x'.repeat(200 * 1024);
    for (let i = 0; i < 5; i++) socket.socket.emit('tool_result', { toolCallId: 'x', result });
    await socket.ask('ping', 'pong');
    for (let i = 0; i < 25; i++) socket.socket.emit('tool_result', { toolCallId: 'x', result });
    await socket.until('(disconnect)');
    expect(socket.all('closing')).toMatchObject([{ reason: 'rate_limited' }]);
  });

  it.each([
    ['as its handshake', '40{"token":"', '"}'],
    ['before it is authenticated', '42["tool_result","', '"]'],
  ])('a long packet %s is disconnected, and the packet is not parsed', async (_, begin, end) => {
    const { sessionId } = await start();
    const parse = vi.spyOn(JSON, 'parse');
    onTestFinished(() => parse.mockRestore());
    const url = `${host.url.replace('http', 'ws')}/socket.io/?EIO=4&transport=websocket`;
    const wire = new WebSocket(`${url}&sessionId=${sessionId}`);
    const received: string[] = [];
    wire.onmessage = ({ data }) => {
      if (received.push(data) === 1) wire.send(`${begin}${'x'.repeat(40_000)}${end}`);
    };
    await once(wire, 'close');
    expect(received).toHaveLength(1);
    expect(parse.mock.calls.filter(([text]) => String(text).length > 40_000)).toEqual([]);
  });

  it('a long acknowledgement is disconnected', async () => {
    const { alice, sessionId } = await start();
    const socket = await joinSession(alice, sessionId, { reconnection: false });
    socket.socket.io.engine.write(`31["${'x'.repeat(1000)}"]`);
    await socket.ask('ping', 'pong');
    socket.socket.io.engine.write(`31["${'x'.repeat(40_000)}"]`);
    await socket.until('(disconnect)');
  });

  it('an invalid packet is disconnected', async () => {
    const { alice, sessionId } = await start();
    for (const packet of ['2["a"', '9', '451-["x",{"_placeholder":true}]x', '5999-["x"]']) {
      const socket = await joinSession(alice, sessionId, { reconnection: false });
      socket.socket.io.engine.write(packet);
      await socket.until('(disconnect)');
    }
  });
});

describe('a socket that reads nothing', () => {
  const steps = Array.from({ length: 400 }, (_, i) => `${i}-`.padEnd(400, 'x'));
  const routed = { message: `use route ${JSON.stringify({ steps })}` };
  const dropped = () =>
    host.log.filter(({ msg }) => String(msg).startsWith('socket disconnected')).length;

  /** Stops a client from reading where it has no say itself: at its TCP socket. */
  function pause({ socket }: SessionSocket): TcpSocket {
    // @ts-expect-error: of the `ws` package.
    const wire = socket.io.engine.transport.ws._socket as TcpSocket;
    return wire.pause();
  }

  it('is disconnected, costs little memory, and gets the rest when it reconnects', {
    timeout: 120_000,
  }, async () => {
    const { alice, sessionId } = await start({}, { plugins: [emitter] });
    const socket = await joinSession(alice, sessionId, { reconnection: false });
    const wire = pause(socket);
    const before = usedMemory();
    let turns = 0;
    for (; dropped() === 0 && turns < 200; turns++)
      await alice.request('POST', `/messages/${sessionId}`, { body: routed });
    expect(dropped()).toBe(1);
    expect(usedMemory() - before).toBeLessThan(60);
    wire.resume();
    await socket.until('(disconnect)');
    socket.socket.connect();
    const countSteps = () => routedSteps(socket).length;
    await expect.poll(countSteps).toBe(turns * steps.length);
    expect(routedSteps(socket)).toEqual(Array.from({ length: turns }, () => steps).flat());
  });

  it('is disconnected also while it is catching up', { timeout: 120_000 }, async () => {
    const { alice, sessionId } = await start({ STREAM_STALL_SECONDS: '1' }, { plugins: [emitter] });
    for (let turn = 0; turn < 40; turn++)
      await alice.request('POST', `/messages/${sessionId}`, { body: routed });
    const socket = openSocket(host.url, {
      query: { sessionId },
      auth: { ...auth(alice), pid: 'p', offset: '0.0' },
      reconnection: false,
    });
    await socket.until('connected');
    pause(socket);
    await expect.poll(dropped).toBe(1);
  });
});
