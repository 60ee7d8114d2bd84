import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Response } from 'express';
import { afterEach, expect, it, vi } from 'vitest';
import type { Frame } from '../store/runs/frames.js';
import { type SseOptions, sendList, sendSse } from './replies.js';

let server: Server | undefined;
afterEach(() => {
  vi.useRealTimers();
  server?.closeAllConnections();
  server?.close();
});

/** Serves one stream and returns the response that a client gets. */
async function serve(frames: SseOptions['frames']): Promise<globalThis.Response> {
  const url = await listen((_, response) => {
    void sendSse(response as Response, { runId: 'run-1', stallMs: 60_000, frames });
  });
  return fetch(url);
}

async function listen(
  answer: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<string> {
  server = createServer(answer);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const frame = (seq: number, event = 'message'): Frame => ({ seq, event, data: `{"n":${seq}}` });

it('sendSse sends nothing after the last frame, and ends', async () => {
  const response = await serve(async function* () {
    yield [frame(1), frame(2)];
    yield [frame(3, 'done')];
  });
  expect(response.headers.get('x-run-id')).toBe('run-1');
  expect(await response.text()).toBe(
    [
      'event: message\nid: 1\ndata: {"n":1}\n\n',
      'event: message\nid: 2\ndata: {"n":2}\n\n',
      'event: done\nid: 3\ndata: {"n":3}\n\n',
    ].join(''),
  );
});

it('sendSse sends a heartbeat after every 15 seconds without frames', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  let finish = () => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const response = await serve(async function* () {
    await finished;
    yield [frame(1, 'done')];
  });
  vi.advanceTimersByTime(30_000);
  finish();
  expect(await response.text()).toBe(
    ': heartbeat\n\n: heartbeat\n\nevent: done\nid: 1\ndata: {"n":1}\n\n',
  );
});

it('sendSse aborts its source when the client disconnects', async () => {
  const gone = Promise.withResolvers<void>();
  const response = await serve(async function* (signal) {
    signal.addEventListener('abort', () => gone.resolve());
    yield [frame(1)];
    await gone.promise;
  });
  await response.body?.cancel();
  await gone.promise;
});

it('sendSse disconnects when its source fails, so that the client reconnects', async () => {
  const response = await serve(async function* () {
    yield [frame(1)];
    throw new Error('store gone');
  });
  await expect(response.text()).rejects.toThrow();
});

it('sendList does not throw if the client has disconnected before the first page', async () => {
  const client = new AbortController();
  const onError = vi.fn();
  const sending = Promise.withResolvers<void>();
  const url = await listen((request, response) => {
    const closed = once(response, 'close');
    const pages = async function* () {
      client.abort();
      await closed;
      yield [1];
    };
    const expressed = Object.assign(response, { req: request, type: () => undefined });
    const answer = { fields: {}, name: 'items', pages: pages(), stallMs: 60_000, onError };
    sending.resolve(sendList(expressed as unknown as Response, answer));
  });
  await expect(fetch(url, { signal: client.signal })).rejects.toThrow();
  await sending.promise;
  expect(onError).not.toHaveBeenCalled();
});
