import { type AddressInfo, createServer, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { afterEach, describe, expect, it } from 'vitest';
import { LOCALHOST_TLS } from '../../demo-chain/test/support/localhost-tls.js';
import { createGrpcClient } from '../src/grpc-client.js';
import { encodeHead } from '../src/http2/frames.js';
import { Flag, FrameType } from '../src/http2/protocol.js';
import { openReadySession } from './support/open-session.js';

const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function listen(greet: (socket: Socket) => void): Promise<string> {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket.on('error', () => {}).resume());
    greet(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanups.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const frame = (type: number, flags: number, streamId: number, payload = Buffer.alloc(0)) =>
  Buffer.concat([encodeHead({ type, flags, streamId }, payload.length), payload]);
const number = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
};
const SETTINGS = frame(FrameType.settings, 0, 0);
const setting = (id: number, value: number) =>
  frame(FrameType.settings, 0, 0, Buffer.concat([Buffer.from([0, id]), number(value)]));
const chunk = Buffer.alloc(16_000, 'x');

describe('OwnSession closes the connection when the peer sends', () => {
  it.each([
    ['a frame over the limit', encodeHead({ type: 0, flags: 0, streamId: 1 }, 16_385), 'too large'],
    ['a push', frame(FrameType.pushPromise, Flag.endHeaders, 1), 'must not push'],
    ['truncated settings', frame(FrameType.settings, 0, 0, Buffer.alloc(5)), 'invalid settings'],
    ['a window over the limit', setting(4, 0xffffffff), 'invalid settings'],
    ['an invalid frame size', setting(5, 1), 'invalid settings'],
    [
      'a window update over the limit',
      frame(FrameType.windowUpdate, 0, 0, number(0x7fffffff)),
      'too large',
    ],
    ['a truncated integer', frame(FrameType.goAway, 0, 0, Buffer.alloc(3)), 'truncated'],
    ['a long ping', frame(FrameType.ping, 0, 0, chunk), 'a ping has the wrong size'],
    ['only padding', frame(FrameType.headers, Flag.padded, 1, Buffer.from([9])), 'padding'],
    [
      'headers with an unknown index',
      frame(FrameType.headers, Flag.endHeaders, 1, Buffer.from([0xff])),
      '',
    ],
    ['an unexpected continuation', frame(FrameType.continuation, 0, 1), 'interrupts the headers'],
    [
      'data between headers',
      Buffer.concat([frame(FrameType.headers, 0, 1), frame(FrameType.data, 0, 1)]),
      'interrupts the headers',
    ],
    [
      'endless headers',
      Buffer.concat([
        frame(FrameType.headers, 0, 1, chunk),
        ...Array.from({ length: 5 }, () => frame(FrameType.continuation, 0, 1, chunk)),
      ]),
      'more than 65536 bytes',
    ],
    [
      'endless empty headers',
      Buffer.concat([
        frame(FrameType.headers, 0, 1),
        ...Array.from({ length: 10_000 }, () => frame(FrameType.continuation, 0, 1)),
      ]),
      'more than 65536 bytes',
    ],
  ])('%s', async (_, bytes, message) => {
    const url = await listen((socket) => {
      socket.write(SETTINGS);
      socket.once('data', () => setImmediate(() => socket.write(bytes)));
    });
    const { closed, request } = await openReadySession(url, 'own');
    const failed = request().catch((error) => error);
    const cause = await closed;
    expect(cause?.message).toContain(message);
    expect(await failed).toEqual({ cause });
    const node = await openReadySession(url, 'node');
    await expect(node.request()).rejects.toBeDefined();
    node.session.destroy();
    await node.closed;
  });
});

it('OwnSession ignores unknown frames and frames of closed streams', async () => {
  const url = await listen((socket) => {
    socket.write(SETTINGS);
    socket.write(frame(0x77, 0xff, 5, Buffer.from('of a later version')));
    socket.write(frame(FrameType.data, Flag.endStream, 99, chunk));
    socket.write(frame(FrameType.reset, 0, 99, number(8)));
    socket.write(frame(FrameType.windowUpdate, 0, 99, number(1)));
    socket.once('data', () =>
      setImmediate(() => {
        const fields = Buffer.from([0x88]);
        socket.write(frame(FrameType.headers, Flag.endHeaders | Flag.endStream, 1, fields));
      }),
    );
  });
  const { request } = await openReadySession(url, 'own');
  expect((await request()).sections).toEqual([{ ':status': '200' }]);
});

it.each([
  ['pings', frame(FrameType.ping, 0, 0, Buffer.alloc(8))],
  ['settings', SETTINGS],
])('OwnSession closes the connection of a peer that sends %s and does not read', async (_, one) => {
  const many = Buffer.concat(Array<Buffer>(4000).fill(one));
  const url = await listen((socket) => {
    socket.pause().write(SETTINGS);
    const flood = (error?: Error | null) => {
      if (!error) socket.write(many, flood);
    };
    flood();
  });
  const { closed } = await openReadySession(url, 'own');
  expect(await closed).toMatchObject({ message: 'the peer does not read', code: 11 });
});

it('OwnSession answers any number of pings of a peer that reads', async () => {
  const [rounds, each] = [20, 1000];
  let received = 0;
  const answered = Promise.withResolvers<void>();
  const pings = Buffer.concat(
    Array<Buffer>(each).fill(frame(FrameType.ping, 0, 0, Buffer.alloc(8))),
  );
  const url = await listen((socket) => {
    socket.write(SETTINGS);
    let sent = 0;
    socket.on('data', (bytes) => {
      received += bytes.length;
      if (received >= rounds * pings.length) answered.resolve();
      if (received < sent * pings.length || sent === rounds) return;
      sent += 1;
      socket.write(pings);
    });
  });
  const { session } = await openReadySession(url, 'own');
  await answered.promise;
  expect(session.isOpen).toBe(true);
  session.destroy();
});

it('OwnSession takes only the same payload for the acknowledgement of a ping', async () => {
  const events: string[] = [];
  const ping = encodeHead({ type: FrameType.ping, flags: 0, streamId: 0 }, 8);
  const ack = encodeHead({ type: FrameType.ping, flags: Flag.ack, streamId: 0 }, 8);
  const url = await listen((socket) => {
    socket.write(SETTINGS);
    let payload = Buffer.alloc(8);
    socket.on('data', (bytes) => {
      const at = bytes.indexOf(ping);
      if (at >= 0) {
        payload = Buffer.from(bytes.subarray(at + ping.length, at + ping.length + 8));
        // The answer to the second one shows that the client has read the first.
        socket.write(Buffer.concat([ack, Buffer.alloc(8), ping, Buffer.alloc(8)]));
      }
      if (!bytes.includes(ack)) return;
      events.push('sent');
      socket.write(Buffer.concat([ack, payload]));
    });
  });
  const { session } = await openReadySession(url, 'own');
  await new Promise<void>((resolve) => {
    session.ping(() => {
      events.push('acknowledged');
      resolve();
    });
  });
  expect(events).toEqual(['sent', 'acknowledged']);
  session.destroy();
});

it('OwnSession reports that the peer closed the connection', async () => {
  const url = await listen((socket) => {
    socket.write(SETTINGS);
    socket.once('data', () => socket.end());
  });
  const { request, closed } = await openReadySession(url, 'own');
  await expect(request()).rejects.toEqual({ cause: undefined });
  await closed;
});

it('OwnSession reports a server that does not speak HTTP/2', async () => {
  const url = await listen((socket) => socket.write('HTTP/1.1 400 Bad Request\r\n\r\n'));
  await expect(openReadySession(url, 'own')).rejects.toThrow('the server does not speak HTTP/2');
});

it('GrpcClient reports a TLS server that does not speak HTTP/2', async () => {
  const server = createTlsServer(LOCALHOST_TLS, (socket) => socket.on('error', () => {}));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanups.push(() => server.close());
  const { port } = server.address() as AddressInfo;
  const url = new URL(`grpcs://localhost:${port}`);
  const client = createGrpcClient({ url, ca: [LOCALHOST_TLS.cert], maxReplyBytes: 1000 });
  cleanups.push(() => client.close());
  await expect(client.call('/a.B/C', new Uint8Array(), { timeoutMs: 5000 })).rejects.toThrow(
    'the node cannot be reached',
  );
});
