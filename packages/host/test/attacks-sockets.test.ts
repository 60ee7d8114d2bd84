import { once } from 'node:events';
import { request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { useControlledHost } from './support/controlled-host.js';
import { startHost } from './support/host.js';
import { resultsIn } from './support/page-tools.js';
import {
  joinSession,
  openRejectedSocket,
  openSocket,
  type SessionSocket,
} from './support/session-socket.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const test = useControlledHost({ env: { RATE_LIMIT_PER_MINUTE: '2000' } });

const deep = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);

const join = async () => {
  const sessionId = await openSession(test.alice);
  const socket = await joinSession(test.alice, sessionId, { reconnection: false });
  return { sessionId, socket };
};

/** Sends a packet as no client would write it. */
const sendRaw = ({ socket }: SessionSocket, packet: string | Buffer) =>
  void socket.io.engine.write(packet);

describe('a socket packet with', () => {
  it.each([
    ['the name of a prototype', '2["__proto__",1]'],
    ['the name of a constructor', '2["constructor",1]'],
    ['a number for a name', '2[7]'],
    ['an unexpected acknowledgement', '35[1]'],
    ['an id of a hundred thousand digits', `2${'1'.repeat(100_000)}["ping"]`],
  ])('%s has no effect', async (_, packet) => {
    const { socket, sessionId } = await join();
    sendRaw(socket, packet);
    expect(await socket.ask('ping', 'pong')).toMatchObject({ sessionId });
  });

  it.each([
    ['a result of ten thousand levels', `2["tool_result",${deep(10_000)}]`],
    [
      'a result as deep as it fits',
      `2["tool_result",{"toolCallId":"x","result":${deep(100_000)}}]`,
    ],
    ['a session of many levels', `2["action_call_result",{"sessionId":${deep(10_000)}}]`],
    ['a reserved name', '2["newListener",1]'],
    ['another reserved name', '2["disconnecting",1]'],
    ['no list', '2{}'],
    ['an unknown kind', '9'],
    ['too many attachments', '511-["x"]'],
    ['a number of files that is none', '5x-["x"]'],
    ['a second handshake', '0{"invocation":1}'],
    ['another namespace', '2/other,["x"]'],
  ])('%s ends only its connection', async (_, packet) => {
    const other = await join();
    const { socket } = await join();
    sendRaw(socket, packet);
    await socket.until('(disconnect)');
    expect(await other.socket.ask('ping', 'pong')).toBeDefined();
  });
});

describe('a socket handshake with', () => {
  it.each<[string, object]>([
    ['no text for a token', { invocation: { toString: 'x' } }],
    ['a list of tokens', { invocation: ['a', 'b'] }],
    ['a token of 20,000 characters', { invocation: 'A'.repeat(20_000) }],
    ['no token, but a place', { offset: '0.0', pid: 'x' }],
    ['a false token beside a good delegation', { invocation: 'AAAA', good: true }],
  ])('%s is rejected', async (_, { good, ...auth }: { good?: boolean }) => {
    const ucanDelegation = good ? test.alice.delegate() : undefined;
    const query = { sessionId: await openSession(test.alice) };
    const refusal = await openRejectedSocket(test.host.url, {
      query,
      auth: { ...auth, ucanDelegation },
    });
    expect(refusal.data.statusCode).toBe(401);
  });

  it('a token of many levels ends only its connection', async () => {
    const other = await join();
    const socket = openSocket(test.host.url, {
      query: { sessionId: await openSession(test.alice) },
      auth: { invocation: JSON.parse(deep(500)) },
      reconnection: false,
    });
    await socket.until('(disconnect)');
    expect(socket.all('(connect)')).toEqual([]);
    expect(await other.socket.ask('ping', 'pong')).toBeDefined();
  });

  it.each(['1e3.5', '-1.0', '9'.repeat(40), '1.', '__proto__', { turn: 1 }, ['1.1']])(
    'the place %j is that of a new client',
    async (offset) => {
      const sessionId = await openSession(test.alice);
      const auth = { invocation: test.alice.mint(), offset, pid: 'x'.repeat(64) };
      const socket = await joinSession(test.alice, sessionId, { auth });
      expect(await socket.ask('ping', 'pong')).toMatchObject({ sessionId });
    },
  );
});

it('a tool_result with ten thousand levels fails its call', async () => {
  const { socket, sessionId } = await join();
  const tools = [{ name: 'look', description: 'Looks', schema: {} }];
  const live = await stream(test.alice, sessionId, { message: 'x', tools });
  (await test.model.next()).call({ name: 'look', input: {} });
  const { toolCallId } = await socket.until('browser_tool_call');
  sendRaw(socket, `2["tool_result",{"toolCallId":"${toolCallId}","result":${deep(10_000)}}]`);
  const after = await test.model.next();
  after.answer('ok');
  await live.toEnd();
  expect(resultsIn(after)).toMatchObject([{ error: expect.any(String) }]);
});

it('unknown socket events count against the rate limit', async () => {
  const { socket } = await join();
  for (let i = 0; i < 3000; i++) socket.socket.emit('nonsense', i);
  expect(await socket.until('closing')).toMatchObject({ reason: 'rate_limited' });
});

it('a socket that reads nothing is disconnected if it continues to send while it is being closed', async () => {
  const sessionId = await openSession(test.alice);
  const accepted = once(test.host.app.nest.getHttpServer(), 'upgrade');
  const { socket } = await joinSession(test.alice, sessionId, { reconnection: false });
  const [{ socket: served }] = (await accepted) as [{ socket: Socket }];
  // As if the client had let everything fill up on its way.
  served.cork();
  const sendMore = () => {
    for (let i = 0; i < 500; i++) socket.emit('nonsense', i);
    return served.destroyed;
  };
  await expect.poll(sendMore, { timeout: 20_000 }).toBe(true);
});

/** Opens a WebSocket by hand; returns both ends of its connection. */
async function openWire(host = test.host, path = '/socket.io/?EIO=4&transport=websocket') {
  const accepted = once(host.app.nest.getHttpServer(), 'connection');
  const { hostname: address, port } = new URL(host.url);
  // Keeps its own side open, as a client does that wants to hold the connection.
  const wire = connect({ port: Number(port), host: address, allowHalfOpen: true });
  wire.on('error', () => undefined);
  const lines = [
    `GET ${path} HTTP/1.1`,
    'Host: x',
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Version: 13',
    `Sec-WebSocket-Key: ${Buffer.alloc(16).toString('base64')}`,
  ];
  wire.write([...lines, '', ''].join('\r\n'));
  const [served] = (await accepted) as [Socket];
  await once(wire, 'readable');
  return { wire, served };
}

/** A WebSocket frame with at most 125 bytes. */
const frame = (first: number, content: string) =>
  Buffer.concat([
    Buffer.from([first, 0x80 | content.length, 0, 0, 0, 0]),
    Buffer.from(content, 'latin1'),
  ]);

/** Sends for as long as the host reads, at most 100 MB. */
function flood(wire: Socket, part: Buffer): void {
  const chunk = Buffer.concat(Array<Buffer>(1000).fill(part));
  const send = () => {
    let hasRoom = !wire.destroyed && wire.bytesWritten < 100e6;
    while (hasRoom) hasRoom = wire.write(chunk) && wire.bytesWritten < 100e6;
  };
  wire.on('drain', send);
  send();
}

describe('a connection without a session', () => {
  it.each([
    ['pings', frame(0x89, '')],
    ['long pings', frame(0x89, 'x'.repeat(125))],
    ['pongs', frame(0x8a, '')],
    ['empty messages', frame(0x81, '')],
    ['packets without content', frame(0x81, '6')],
    ['probes', frame(0x81, '2probe')],
    ['events', frame(0x81, '42["ping"]')],
    ['attachments', frame(0x82, 'x')],
    ['handshakes for other namespaces', frame(0x81, '40/other,')],
  ])('is disconnected if it sends many %s, also while it is being closed', async (_, part) => {
    const { wire, served } = await openWire();
    flood(wire, part);
    await expect.poll(() => served.destroyed, { timeout: 20_000 }).toBe(true);
    expect(served.bytesRead).toBeLessThan(10e6);
  });

  it('may send as many pings as a client does', async () => {
    const { wire, served } = await openWire();
    const answer = once(wire, 'data');
    wire.write(Buffer.concat(Array<Buffer>(50).fill(frame(0x89, 'x'))));
    await answer;
    expect(served.destroyed).toBe(false);
    wire.destroy();
  });
});

it('acknowledgements count towards what a connection may send, since no call waits for one', async () => {
  const { socket } = await join();
  for (let i = 0; i < 150; i++) sendRaw(socket, '35[1]');
  await socket.until('(disconnect)');
});

it('many packets in one request, by polling, end the connection', async () => {
  const url = `${test.host.url}/socket.io/?EIO=4&transport=polling`;
  const { sid } = JSON.parse((await (await fetch(url)).text()).slice(1));
  await fetch(`${url}&sid=${sid}`, { method: 'POST', body: Array(500).fill('6').join('\x1e') });
  expect((await fetch(`${url}&sid=${sid}`)).status).toBe(400);
});

describe('messages that do not end', () => {
  // An address may send two of them at a time.
  const env = { SOCKET_MESSAGE_LIMIT: '64kb', BODY_LIMIT: '16kb', BODIES_LIMIT: '64kb' };
  const length = 0xfc00;
  const part = Buffer.alloc(60_000, 'x');
  const head = Buffer.from([0x81, 0x80 | 126, length >> 8, length & 0xff, 0, 0, 0, 0]);

  it('are limited in sum, by WebSocket, before authentication', async () => {
    const host = await startHost({ env });
    onTestFinished(host.close);
    const wires = [await openWire(host), await openWire(host), await openWire(host)];
    const countLost = () => wires.filter(({ served }) => served.destroyed).length;
    for (const { wire } of wires) wire.write(Buffer.concat([head, part]));
    await expect.poll(countLost).toBe(1);
    for (const { wire } of wires) wire.destroy();
    await expect.poll(countLost).toBe(3);
    // What was received is released, also of messages that were complete.
    const alice = new TestUser(host);
    const socket = await joinSession(alice, await openSession(alice), { reconnection: false });
    for (let i = 0; i < 5; i++)
      socket.socket.emit('tool_result', { toolCallId: 'x', result: String(part) });
    expect(await socket.ask('ping', 'pong')).toBeDefined();
  });

  it('are limited in sum, also if they wait for their last attachment', async () => {
    const host = await startHost({ env });
    onTestFinished(host.close);
    const alice = new TestUser(host);
    const socket = await joinSession(alice, await openSession(alice), { reconnection: false });
    sendRaw(socket, '54-["x",{"_placeholder":true,"num":0}]');
    for (let i = 0; i < 3; i++) sendRaw(socket, part);
    await socket.until('(disconnect)');
  });

  it('are limited in sum, by polling', async () => {
    const host = await startHost({ env });
    onTestFinished(host.close);
    const url = `${host.url}/socket.io/?EIO=4&transport=polling`;
    const begin = async () => {
      const { sid } = JSON.parse((await (await fetch(url)).text()).slice(1));
      const options = { method: 'POST', headers: { 'content-length': length } };
      const sent = request(`${url}&sid=${sid}`, options).on('error', () => undefined);
      sent.write(part);
      return sent;
    };
    const begun = [await begin(), await begin(), await begin()];
    await expect.poll(() => begun.filter(({ destroyed }) => destroyed).length).toBe(1);
    for (const sent of begun) sent.destroy();
  });
});

describe('an upgrade request that is not accepted', () => {
  it.each([
    ['an unknown path', '/unknown', {}],
    ['an unknown connection', '/socket.io/?EIO=4&transport=websocket&sid=x', {}],
    ['too many sockets', '/socket.io/?EIO=4&transport=websocket', { SOCKETS_PER_ADDRESS: '1' }],
  ])('holds no connection: %s', async (_, path, env) => {
    const host = await startHost({ env });
    onTestFinished(host.close);
    const first = await openWire(host);
    const { wire, served } = await openWire(host, path);
    await expect.poll(() => served.destroyed).toBe(true);
    for (const each of [first.wire, wire]) each.destroy();
  });
});
