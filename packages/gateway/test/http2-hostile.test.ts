import { type AddressInfo, createServer, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { afterEach, describe, expect, it } from 'vitest';
import { GrpcUpstream } from '../src/upstream/grpc/grpc-upstream.js';
import { headOf } from '../src/upstream/http2/frames.js';
import { Flag, FrameType } from '../src/upstream/http2/protocol.js';
import { openSession } from './support/http2-session.js';
import { LOCALHOST_TLS } from './support/localhost-tls.js';

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
  Buffer.concat([headOf({ type, flags, streamId }, payload.length), payload]);
const number = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
};
const SETTINGS = frame(FrameType.settings, 0, 0);
const setting = (id: number, value: number) =>
  frame(FrameType.settings, 0, 0, Buffer.concat([Buffer.from([0, id]), number(value)]));
const piece = Buffer.alloc(16_000, 'x');

describe('a peer that breaks the rules loses its connection:', () => {
  it.each([
    ['a frame over the limit', headOf({ type: 0, flags: 0, streamId: 1 }, 16_385), 'too large'],
    ['a push', frame(FrameType.pushPromise, Flag.endHeaders, 1), 'pushed'],
    ['settings cut short', frame(FrameType.settings, 0, 0, Buffer.alloc(5)), 'make no sense'],
    ['a window without end', setting(4, 0xffffffff), 'make no sense'],
    ['frames of no size', setting(5, 1), 'make no sense'],
    ['too much permission', frame(FrameType.windowUpdate, 0, 0, number(0x7fffffff)), 'too large'],
    ['a number cut short', frame(FrameType.goAway, 0, 0, Buffer.alloc(3)), 'cut short'],
    ['padding alone', frame(FrameType.headers, Flag.padded, 1, Buffer.from([9])), 'padded'],
    ['headers of nothing', frame(FrameType.headers, Flag.endHeaders, 1, Buffer.from([0xff])), ''],
    ['a continuation of nothing', frame(FrameType.continuation, 0, 1), 'amid the headers'],
    [
      'data amid headers',
      Buffer.concat([frame(FrameType.headers, 0, 1), frame(FrameType.data, 0, 1)]),
      'amid the headers',
    ],
    [
      'headers without end',
      Buffer.concat([
        frame(FrameType.headers, 0, 1, piece),
        ...Array.from({ length: 5 }, () => frame(FrameType.continuation, 0, 1, piece)),
      ]),
      'more than 65536 bytes',
    ],
    [
      'empty headers without end',
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
    const { closed, ask } = await openSession(url);
    const cut = ask().catch((fault) => fault);
    const cause = await closed;
    expect(cause?.message).toContain(message);
    expect(await cut).toEqual({ cause });
  });
});

it('passes over what it does not know or no longer wants', async () => {
  const url = await listen((socket) => {
    socket.write(SETTINGS);
    socket.write(frame(0x77, 0xff, 5, Buffer.from('of a later version')));
    socket.write(frame(FrameType.data, Flag.endStream, 99, piece));
    socket.write(frame(FrameType.reset, 0, 99, number(8)));
    socket.write(frame(FrameType.windowUpdate, 0, 99, number(1)));
    socket.once('data', () =>
      setImmediate(() => {
        const fields = Buffer.from([0x88]);
        socket.write(frame(FrameType.headers, Flag.endHeaders | Flag.endStream, 1, fields));
      }),
    );
  });
  const { ask } = await openSession(url);
  expect((await ask()).sections).toEqual([{ ':status': '200' }]);
});

it('notices that the other side hung up', async () => {
  const url = await listen((socket) => {
    socket.write(SETTINGS);
    socket.once('data', () => socket.end());
  });
  const { ask, closed } = await openSession(url);
  await expect(ask()).rejects.toEqual({ cause: undefined });
  await closed;
});

it('says that what answers does not speak HTTP/2', async () => {
  const url = await listen((socket) => socket.write('HTTP/1.1 400 Bad Request\r\n\r\n'));
  await expect(openSession(url)).rejects.toThrow('it does not speak HTTP/2');
});

it('says so of a server with TLS too', async () => {
  const server = createTlsServer(LOCALHOST_TLS, (socket) => socket.on('error', () => {}));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanups.push(() => server.close());
  const { port } = server.address() as AddressInfo;
  const url = new URL(`grpcs://localhost:${port}`);
  const upstream = new GrpcUpstream({ url, ca: [LOCALHOST_TLS.cert], maxReplyBytes: 1000 });
  cleanups.push(() => upstream.close());
  await expect(upstream.call('/a.B/C', new Uint8Array(), { timeoutMs: 5000 })).rejects.toThrow(
    'the node cannot be reached',
  );
});
