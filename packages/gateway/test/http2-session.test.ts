import {
  constants,
  createServer,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type ServerOptions,
} from 'node:http2';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { openSession } from './support/http2-session.js';

const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

type Serve = (stream: ServerHttp2Stream, headers: Record<string, unknown>) => void;

/** A session with Node's own HTTP/2 server, which answers as the test says. */
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
  const opened = await openSession(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  cleanups.push(() => opened.session.destroy());
  return { ...opened, sessions };
}

/** Sends back what it was sent. */
const echo: Serve = (stream) => {
  stream.respond({ ':status': 200 });
  stream.pipe(stream);
};

const bytes = (length: number) => Buffer.from(Array.from({ length }, (_, i) => (i * 7) % 251));

describe.each([
  ['bare', {}],
  ['padded', { paddingStrategy: constants.PADDING_STRATEGY_MAX }],
])('with %s frames', (_, options) => {
  it('carries bodies of any size both ways', async () => {
    const { ask } = await withServer(echo, options);
    for (const length of [1, 16_384, 16_385, 65_535, 65_536, 1_000_000]) {
      const { body } = await ask(bytes(length));
      expect(body.equals(bytes(length))).toBe(true);
    }
  });
});

it('carries replies larger than what may be under way at a time', async () => {
  const size = 40 * 1024 * 1024;
  const { ask } = await withServer((stream) => {
    stream.respond({ ':status': 200 });
    stream.end(Buffer.alloc(size, 'x'));
  });
  expect((await ask()).body).toHaveLength(size);
});

it('waits where the other side allows little at a time', async () => {
  const { ask } = await withServer(echo, { settings: { initialWindowSize: 10 } });
  const { body } = await ask(bytes(1000));
  expect(body.equals(bytes(1000))).toBe(true);
});

it('asks no more at a time than the other side has room for', async () => {
  let running = 0;
  let most = 0;
  const { ask } = await withServer(
    (stream) => {
      running += 1;
      most = Math.max(most, running);
      setImmediate(() => {
        running -= 1;
        stream.respond({ ':status': 200 });
        stream.end('!');
      });
    },
    { settings: { maxConcurrentStreams: 4 } },
  );
  const answers = await Promise.all(Array.from({ length: 100 }, () => ask()));
  expect(answers.every(({ body }) => String(body) === '!')).toBe(true);
  expect(most).toBe(4);
});

it('reads every character a header may have, and trailers after the body', async () => {
  const codes = Array.from({ length: 0x100 }, (_, code) => code);
  const printable = codes
    .filter((code) => code >= 0x20 && code !== 0x7f)
    .map((code) => String.fromCharCode(code));
  const { ask } = await withServer((stream) => {
    stream.respond({ ':status': 200 }, { waitForTrailers: true });
    const trailers = printable.map((character, i) => [`x-${i}`, `0000000${character}0000000`]);
    stream.once('wantTrailers', () => stream.sendTrailers(Object.fromEntries(trailers)));
    stream.end('body');
  });
  const { sections, body } = await ask();
  expect(String(body)).toBe('body');
  const read = printable.map((_, i) => sections[1]?.[`x-${i}`]?.slice(7, 8));
  expect(read).toEqual(printable);
});

it('carries headers that take several frames, both ways', async () => {
  const long = 'ä?'.repeat(15_000);
  const { ask } = await withServer(
    (stream, headers) => {
      stream.respond({ ':status': 200, 'x-long': String(headers['x-long']).slice(0, 25_000) });
      stream.end();
    },
    { maxSessionMemory: 100, settings: { maxHeaderListSize: 100_000 } },
  );
  const { sections } = await ask(undefined, ['x-long', long]);
  expect(sections).toEqual([expect.objectContaining({ 'x-long': long.slice(0, 25_000) })]);
});

it('passes over hints that come before the headers', async () => {
  const { ask } = await withServer((stream) => {
    stream.additionalHeaders({ ':status': 103, link: '</style.css>' });
    stream.respond({ ':status': 204 }, { endStream: true });
  });
  expect((await ask()).sections).toEqual([expect.objectContaining({ ':status': '204' })]);
});

it('answers signs of life and asks for them', async () => {
  const { session, sessions } = await withServer(echo);
  await new Promise<void>((resolve) => session.ping(resolve));
  const payload = Buffer.from('12345678');
  const answer = await new Promise<Buffer>((resolve, reject) => {
    sessions[0]?.ping(payload, (fault, _, echoed) => (fault ? reject(fault) : resolve(echoed)));
  });
  expect(answer.equals(payload)).toBe(true);
});

it('finishes what the other side began with before it went away, and refuses the rest', async () => {
  const held = Promise.withResolvers<ServerHttp2Stream>();
  const { ask, session, sessions, closed } = await withServer((stream) => held.resolve(stream));
  const begun = ask();
  const stream = await held.promise;
  sessions[0]?.goaway(constants.NGHTTP2_NO_ERROR, stream.id);
  await expect.poll(() => session.isOpen).toBe(false);
  await expect(ask()).rejects.toEqual({ code: constants.NGHTTP2_REFUSED_STREAM });
  stream.respond({ ':status': 200 });
  stream.end('done');
  expect(String((await begun).body)).toBe('done');
  await closed;
});

it('hands over to another connection when its numbers run out', async () => {
  const { ask, session, closed } = await withServer(echo);
  Object.assign(session, { nextId: 0x7fffffff });
  expect(String((await ask(Buffer.from('last'))).body)).toBe('last');
  expect(session.isOpen).toBe(false);
  await closed;
});

it('stops sending when the answer came before the question was out', async () => {
  const { ask } = await withServer(
    (stream) => {
      stream.respond({ ':status': 413 });
      stream.end();
    },
    { settings: { initialWindowSize: 10 } },
  );
  expect((await ask(bytes(1000))).sections[0]).toHaveProperty(':status', '413');
  expect((await ask(bytes(1))).sections[0]).toHaveProperty(':status', '413');
});
