import { type SafeFetch, SafeFetchError } from '@sibyl/plugin-kit';
import { describe, expect, it } from 'vitest';
import { HomeserverDownError, HomeserverHealth } from './health.js';

const URL = 'https://matrix.example/_matrix/client/v3/account/whoami';
const signal = new AbortController().signal;

/** A homeserver that behaves as the test decides, at the time that the test decides. */
function create() {
  const state = { now: 0, sent: 0, answer: async () => new Response('{}') };
  const fetch: SafeFetch = async (_, init) => {
    state.sent += 1;
    const aborted = new Promise<never>((_resolve, reject) => {
      init?.signal?.addEventListener('abort', () => reject(init.signal?.reason));
    });
    return Promise.race([state.answer(), aborted]);
  };
  const health = new HomeserverHealth(fetch, () => state.now);
  const ask = () =>
    health.fetch(URL).then(
      ({ status }) => status,
      (error) => error.name,
    );
  return { state, health, ask };
}

const fail = async () => {
  throw new SafeFetchError('network', 'refused');
};

describe('HomeserverHealth.fetch', () => {
  it('asks no more after two failures, tries once after a pause, and continues when that succeeds', async () => {
    const { state, health, ask } = create();
    state.answer = fail;
    expect(await ask()).toBe('SafeFetchError');
    state.now += 1;
    expect(await ask()).toBe('SafeFetchError');
    expect(health.isDown('matrix.example')).toBe(true);
    expect(await ask()).toBe('HomeserverDownError');
    expect(state.sent).toBe(2);
    state.now += 5_001;
    const { promise, resolve } = Promise.withResolvers<Response>();
    state.answer = () => promise;
    const trial = ask();
    expect(await ask()).toBe('HomeserverDownError');
    resolve(new Response('{}'));
    expect(await trial).toBe(200);
    expect(await ask()).toBe(200);
    expect(health.isDown('https://matrix.example')).toBe(false);
  });

  it('waits longer after each trial that fails', async () => {
    const { state, ask } = create();
    state.answer = fail;
    await ask();
    state.now += 1;
    await ask();
    state.now += 5_001;
    expect(await ask()).toBe('SafeFetchError');
    state.now += 5_001;
    expect(await ask()).toBe('HomeserverDownError');
  });

  it('counts requests that fail together as one failure', async () => {
    const { state, health } = create();
    const { promise, reject } = Promise.withResolvers<Response>();
    state.answer = () => promise;
    const asked = Array.from({ length: 5 }, () => health.fetch(URL).catch(() => undefined));
    state.now += 1;
    reject(new SafeFetchError('timeout', 'too long'));
    await Promise.all(asked);
    expect(health.isDown('matrix.example')).toBe(false);
  });

  it.each([400, 401, 404, 429, 500])('takes %i for an answer', async (status) => {
    const { state, health, ask } = create();
    state.answer = async () => new Response('{}', { status });
    for (let i = 0; i < 5; i += 1) {
      state.now += 1;
      await ask();
    }
    expect(health.isDown('matrix.example')).toBe(false);
  });

  it('takes 502, 503 and 504 for an outage', async () => {
    const { state, health, ask } = create();
    for (const status of [502, 504]) {
      state.now += 1;
      state.answer = async () => new Response('', { status });
      await ask();
    }
    expect(health.isDown('matrix.example')).toBe(true);
  });

  it('affects one homeserver only', async () => {
    const { state, health, ask } = create();
    state.answer = fail;
    for (let i = 0; i < 3; i += 1) {
      state.now += 1;
      await ask();
    }
    expect(health.isDown('other.example')).toBe(false);
  });
});

describe('HomeserverHealth.whileAlive', () => {
  const hang = () => new Promise<Response>(() => undefined);

  it('aborts work with a homeserver that stays silent', async () => {
    const { state, health } = create();
    state.answer = hang;
    const work = health.whileAlive('https://matrix.example', signal, (alive) =>
      health.fetch(URL, { signal: alive }),
    );
    await expect(work).rejects.toThrow(HomeserverDownError);
  });

  it('lets work take its time as long as the homeserver answers something', async () => {
    const { state, health } = create();
    const { promise, resolve } = Promise.withResolvers<string>();
    const work = health.whileAlive('https://matrix.example', signal, async (alive) => {
      await health.fetch(URL, { signal: alive });
      return promise;
    });
    state.answer = hang;
    const silent = health.whileAlive('https://other.example', signal, (alive) =>
      health.fetch('https://other.example/x', { signal: alive }),
    );
    // By then, the first would have been aborted too.
    await expect(silent).rejects.toThrow(HomeserverDownError);
    resolve('late');
    expect(await work).toBe('late');
  });

  it('ends with the turn', async () => {
    const { state, health } = create();
    state.answer = hang;
    const turn = new AbortController();
    const work = health.whileAlive('https://matrix.example', turn.signal, (alive) =>
      health.fetch(URL, { signal: alive }),
    );
    turn.abort(new Error('stopped'));
    await expect(work).rejects.toThrow('stopped');
    expect(health.isDown('matrix.example')).toBe(false);
  });
});
