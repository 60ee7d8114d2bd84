import {
  constants,
  createServer,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type ServerOptions,
} from 'node:http2';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { openReadySession } from './support/open-session.js';

const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

type Serve = (stream: ServerHttp2Stream, headers: Record<string, unknown>) => void;

describe.each(['own', 'node'] as const)('with %s HTTP/2', (http2) => {
  /** A session with Node's HTTP/2 server. */
  async function withServer(serve: Serve, options: ServerOptions = {}) {
    const server = createServer(options);
    const sessions: ServerHttp2Session[] = [];
    server.on('session', (session) => sessions.push(session));
    server.on('stream', (stream, headers) => {
      stream.on('error', () => {});
      serve(stream, headers);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    cleanups.push(() => {
      for (const session of sessions) session.destroy();
      server.close();
    });
    const opened = await openReadySession(
      `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      http2,
    );
    cleanups.push(() => opened.session.destroy());
    return { ...opened, sessions };
  }

  const echo: Serve = (stream) => {
    stream.respond({ ':status': 200 });
    stream.pipe(stream);
  };

  const bytes = (length: number) => Buffer.from(Array.from({ length }, (_, i) => (i * 7) % 251));

  describe.each([
    ['bare', {}],
    ['padded', { paddingStrategy: constants.PADDING_STRATEGY_MAX }],
  ])('Session with %s frames', (_, options) => {
    it('sends and receives bodies of every size', async () => {
      const { request } = await withServer(echo, options);
      for (const length of [1, 16_384, 16_385, 65_535, 65_536, 1_000_000]) {
        const { body } = await request(bytes(length));
        expect(body.equals(bytes(length))).toBe(true);
      }
    });
  });

  it('Session receives replies larger than the connection window', async () => {
    const size = 40 * 1024 * 1024;
    const { request } = await withServer((stream) => {
      stream.respond({ ':status': 200 });
      stream.end(Buffer.alloc(size, 'x'));
    });
    expect((await request()).body).toHaveLength(size);
  });

  it('Session respects a small stream window of the peer', async () => {
    const { request } = await withServer(echo, { settings: { initialWindowSize: 10 } });
    const { body } = await request(bytes(1000));
    expect(body.equals(bytes(1000))).toBe(true);
  });

  it('Session opens no more streams than the peer allows at a time', async () => {
    let running = 0;
    let max = 0;
    const { request } = await withServer(
      (stream) => {
        running += 1;
        max = Math.max(max, running);
        setImmediate(() => {
          running -= 1;
          stream.respond({ ':status': 200 });
          stream.end('!');
        });
      },
      { settings: { maxConcurrentStreams: 4 } },
    );
    const responses = await Promise.all(Array.from({ length: 100 }, () => request()));
    expect(responses.every(({ body }) => String(body) === '!')).toBe(true);
    expect(max).toBe(4);
  });

  it('Session reads every header character, and trailers after the body', async () => {
    const codes = Array.from({ length: 0x100 }, (_, code) => code);
    const printable = codes
      .filter((code) => code >= 0x20 && code !== 0x7f)
      .map((code) => String.fromCharCode(code));
    const { request } = await withServer((stream) => {
      stream.respond({ ':status': 200 }, { waitForTrailers: true });
      const trailers = printable.map((character, i) => [`x-${i}`, `0000000${character}0000000`]);
      stream.once('wantTrailers', () => stream.sendTrailers(Object.fromEntries(trailers)));
      stream.end('body');
    });
    const { sections, body } = await request();
    expect(String(body)).toBe('body');
    const read = printable.map((_, i) => sections[1]?.[`x-${i}`]?.slice(7, 8));
    expect(read).toEqual(printable);
  });

  it('Session sends and receives headers that span several frames', async () => {
    const long = 'ä?'.repeat(15_000);
    const { request } = await withServer(
      (stream, headers) => {
        stream.respond({ ':status': 200, 'x-long': String(headers['x-long']).slice(0, 25_000) });
        stream.end();
      },
      { maxSessionMemory: 100, settings: { maxHeaderListSize: 100_000 } },
    );
    const { sections } = await request(undefined, ['x-long', long]);
    expect(sections).toEqual([expect.objectContaining({ 'x-long': long.slice(0, 25_000) })]);
  });

  it('Session ignores informational responses', async () => {
    const { request } = await withServer((stream) => {
      stream.additionalHeaders({ ':status': 103, link: '</style.css>' });
      stream.respond({ ':status': 204 }, { endStream: true });
    });
    expect((await request()).sections).toEqual([expect.objectContaining({ ':status': '204' })]);
  });

  it('Session sends and answers pings', async () => {
    const { session, sessions } = await withServer(echo);
    await new Promise<void>((resolve) => session.ping(resolve));
    const payload = Buffer.from('12345678');
    const answer = await new Promise<Buffer>((resolve, reject) => {
      sessions[0]?.ping(payload, (fault, _, echoed) => (fault ? reject(fault) : resolve(echoed)));
    });
    expect(answer.equals(payload)).toBe(true);
  });

  it('Session finishes started streams after GOAWAY and refuses new ones', async () => {
    const held = Promise.withResolvers<ServerHttp2Stream>();
    const { request, session, sessions, closed } = await withServer((stream) =>
      held.resolve(stream),
    );
    const begun = request();
    const stream = await held.promise;
    sessions[0]?.goaway(constants.NGHTTP2_NO_ERROR, stream.id);
    await expect.poll(() => session.isOpen).toBe(false);
    await expect(request()).rejects.toEqual({ code: constants.NGHTTP2_REFUSED_STREAM });
    stream.respond({ ':status': 200 });
    stream.end('done');
    expect(String((await begun).body)).toBe('done');
    await closed;
  });

  // Node counts the ids of its client itself.
  if (http2 === 'own') {
    it('Session retires when its stream ids are used up', async () => {
      const { request, session, closed } = await withServer(echo);
      Object.assign(session, { nextId: 0x7fffffff });
      expect(String((await request(Buffer.from('last'))).body)).toBe('last');
      expect(session.isOpen).toBe(false);
      await closed;
    });
  }

  it('Session stops sending when the response is complete before the request', async () => {
    const { request } = await withServer(
      (stream) => {
        stream.respond({ ':status': 413 });
        stream.end();
      },
      { settings: { initialWindowSize: 10 } },
    );
    expect((await request(bytes(1000))).sections[0]).toHaveProperty(':status', '413');
    expect((await request(bytes(1))).sections[0]).toHaveProperty(':status', '413');
  });
});
