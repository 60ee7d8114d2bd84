import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Response } from 'express';
import { afterEach, expect, it, vi } from 'vitest';
import type { Frame } from '../store/runs/frames.js';
import { type SseOptions, sendSse } from './responses.js';

let server: Server | undefined;
afterEach(() => {
  vi.useRealTimers();
  server?.closeAllConnections();
  server?.close();
});

/** Serves one stream and returns the response that a client gets. */
async function serve(frames: SseOptions['frames']): Promise<globalThis.Response> {
  server = createServer((_, response) => {
    void sendSse(response as Response, { runId: 'run-1', stallMs: 60_000, frames });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
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
