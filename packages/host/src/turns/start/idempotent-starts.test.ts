import { afterEach, describe, expect, it, vi } from 'vitest';
import { newOwner, useStore } from '../../../test/support/test-database.js';
import {
  createRunRequest,
  expectStarted,
  finishTestRun,
  openTestSession,
} from '../../../test/support/test-runs.js';
import { runInScope, Scope } from '../../observability/spans.js';
import { StoreError, UnsyncedError } from '../../store/store-errors.js';
import type { TurnRequest } from '../turn-request.js';
import { type IdempotencyClaim, IdempotentStarts, storeStart } from './idempotent-starts.js';

const DAY_MS = 24 * 60 * 60 * 1000;

interface Place {
  readonly owner: string;
  readonly sessionId: string;
}

function requestIn(
  { owner, sessionId }: Place,
  more: Partial<TurnRequest> = {},
  message: Partial<TurnRequest['message']> = {},
): TurnRequest {
  return {
    caller: { did: owner, expiration: 0, presentedDelegation: undefined },
    sessionId,
    requestId: 'request',
    message: { message: 'hi', multitask: 'enqueue', ...message },
    user: {},
    client: 'api',
    ...more,
  };
}

describe('IdempotentStarts', () => {
  const test = useStore('sqlite');

  /** Requests with the key `k` that start runs in the store. */
  async function open() {
    const place = await openTestSession(test.store);
    const starts = new IdempotentStarts(test.store);
    const claims: (IdempotencyClaim | undefined)[] = [];
    const startIn = (at: Place) => async (idempotency?: IdempotencyClaim) => {
      claims.push(idempotency);
      const result = await test.store.runs.start(createRunRequest({ ...at, idempotency }));
      return expectStarted(result).runId;
    };
    const send = (
      more: Partial<TurnRequest> = {},
      message: Partial<TurnRequest['message']> = {},
      at: Place = place,
    ) => starts.run(requestIn(at, { idempotencyKey: 'k', ...more }, message), startIn(at));
    return { place, starts, claims, send };
  }

  it('run starts a run for each request without a key', async () => {
    const { claims, send } = await open();
    const keyless = { idempotencyKey: undefined };
    const ids = [await send(keyless), await send(keyless)];
    expect(new Set(ids).size).toBe(2);
    expect(claims).toEqual([undefined, undefined]);
  });

  it('run returns the run of the first request to those that repeat it within a day', async () => {
    const { claims, send } = await open();
    const before = Date.now();
    const first = await send();
    // Neither is part of what is asked.
    expect(await send({ requestId: 'another', client: 'socket' })).toBe(first);
    expect(claims).toEqual([
      { key: 'k', bodyHash: expect.any(String), expiresAt: expect.any(Number) },
    ]);
    const lifetime = (claims[0]?.expiresAt ?? 0) - before;
    expect(lifetime).toBeGreaterThanOrEqual(DAY_MS);
    expect(lifetime).toBeLessThan(DAY_MS + 60_000);
  });

  it('run starts one run for requests at the same time', async () => {
    const { claims, send } = await open();
    const ids = await Promise.all([send(), send(), send()]);
    expect(new Set(ids).size).toBe(1);
    expect(claims).toHaveLength(1);
  });

  it('run starts another run for another key, and for another user', async () => {
    const { send, claims } = await open();
    const other = await openTestSession(test.store);
    const first = await send();
    const ids = await Promise.all([send({ idempotencyKey: 'l' }), send({}, {}, other)]);
    expect(new Set([first, ...ids]).size).toBe(3);
    expect(claims).toHaveLength(3);
  });

  it.each<[string, Partial<TurnRequest>, Partial<TurnRequest['message']>]>([
    ['text', {}, { message: 'ho' }],
    ['model', {}, { model: 'large' }],
    ['session', { sessionId: 's2' }, {}],
    ['place in the conversation', { origin: { parentId: 'm1' } }, {}],
  ])('run refuses the key for another %s', async (_, more, message) => {
    const { send, claims } = await open();
    await send();
    await expect(send(more, message)).rejects.toMatchObject({ code: 'idempotency_conflict' });
    expect(claims).toHaveLength(1);
  });

  it('run distinguishes where in the conversation a message begins', async () => {
    const { send } = await open();
    await send({ origin: { parentId: 'm1' } });
    const elsewhere = send({ origin: { parentId: 'm2' } });
    await expect(elsewhere).rejects.toMatchObject({ code: 'idempotency_conflict' });
  });

  it('run shares nothing between different requests at the same time', async () => {
    const { starts, place } = await open();
    const held = Promise.withResolvers<string>();
    const request = { idempotencyKey: 'k' };
    const first = starts.run(requestIn(place, request), () => held.promise);
    const others = [
      requestIn(place, request, { message: 'ho' }),
      requestIn({ ...place, owner: newOwner() }, request),
      requestIn(place, { idempotencyKey: 'l' }),
    ].map((other, i) => starts.run(other, async () => `other ${i}`));
    expect(await Promise.all(others)).toEqual(['other 0', 'other 1', 'other 2']);
    held.resolve('first');
    expect(await first).toBe('first');
  });

  it('run tries again after a start that failed', async () => {
    const { starts, place, send } = await open();
    const request = requestIn(place, { idempotencyKey: 'k' });
    const fail = () => Promise.reject(new Error('refused'));
    const failing = [starts.run(request, fail), starts.run(request, fail)];
    for (const failed of failing) await expect(failed).rejects.toThrow('refused');
    expect(await send()).toEqual(expect.any(String));
  });

  it('run starts the next attempt if the first was left without an answer', async () => {
    const { send, claims, place, starts } = await open();
    const runId = await send();
    await finishTestRun(
      test.store.runs,
      { owner: place.owner, runId },
      {
        status: 'failed',
        report: { error: { code: 'host_busy', message: 'busy', retryAfterSeconds: 5 } },
      },
    );
    const request = requestIn(place, { idempotencyKey: 'k' });
    const next = vi.fn(async (_?: IdempotencyClaim) => 'next attempt');
    expect(await starts.run(request, next)).toBe('next attempt');
    expect(next.mock.calls[0]?.[0]).toMatchObject({ key: 'k', bodyHash: claims[0]?.bodyHash });
  });
});

describe('storeStart', () => {
  const test = useStore('sqlite');
  afterEach(() => void vi.restoreAllMocks());

  const settings = { maxPerUser: 20, resumesTurns: false };
  const start = (request: TurnRequest, more: Partial<typeof settings> = {}) =>
    storeStart({ store: test.store, settings: { ...settings, ...more } }, request, {
      runId: crypto.randomUUID(),
    });

  /** What reaches the store. */
  async function record(request: TurnRequest, more: Partial<typeof settings> = {}) {
    const spy = vi.spyOn(test.store.runs, 'start');
    await start(request, more);
    return spy.mock.calls[0]?.[0];
  }

  it('stores all that the request contains', async () => {
    const place = await openTestSession(test.store);
    const file = { fileId: 'f1', filename: 'a.txt', mimetype: 'text/plain' };
    const metadata = { a: 1 };
    const request = requestIn(
      place,
      {
        origin: { parentId: null },
        surface: { plugin: 'p', clientIds: ['c1'] },
        waitsForPaused: true,
      },
      { attachments: [file], metadata, multitask: 'reject' },
    );
    expect(await record(request, { maxPerUser: 3, resumesTurns: true })).toMatchObject({
      ...place,
      requestId: 'request',
      message: {
        content: 'hi',
        parts: [
          { type: 'text', text: 'hi' },
          { type: 'file', file },
        ],
        metadata,
      },
      origin: { parentId: null },
      clientIds: ['c1'],
      multitask: 'reject',
      waitsForPaused: true,
      limits: { live: 3, waiting: 10 },
      request: { sessionId: place.sessionId, caller: { did: place.owner } },
      isResumable: true,
    });
  });

  it('lets ten turns of a session wait', async () => {
    const place = await openTestSession(test.store);
    for (let i = 0; i < 11; i++)
      expect(await start(requestIn(place))).toMatchObject({ state: 'started' });
    expect(await start(requestIn(place))).toEqual({ state: 'queue-full' });
  });

  it('limits the turns of a user', async () => {
    const place = await openTestSession(test.store);
    const one = { maxPerUser: 1 };
    expect(await start(requestIn(place), one)).toMatchObject({ state: 'started' });
    expect(await start(requestIn(place), one)).toEqual({ state: 'too-many' });
  });

  it('gives the run the trace of its request', async () => {
    const place = await openTestSession(test.store);
    const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
    const recordIn = (scope: Scope) => runInScope(scope, () => record(requestIn(place)));
    expect((await recordIn(new Scope({ traceparent })))?.traceparent).toBe(traceparent);
    vi.restoreAllMocks();
    const untraced = new Scope({});
    const created = (await recordIn(untraced))?.traceparent;
    expect(created).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/);
    expect(created).toContain(untraced.traceId);
    vi.restoreAllMocks();
    expect((await record(requestIn(place)))?.traceparent).toBeUndefined();
  });

  /** The database stores the run, or not, and its reply is lost. */
  function loseReply(error: Error, { isStored = true } = {}) {
    const { runs } = test.store;
    const stored = runs.start.bind(runs);
    vi.spyOn(runs, 'start').mockImplementation(async (request) => {
      if (isStored) await stored(request);
      throw error;
    });
    return vi.spyOn(runs, 'find');
  }

  it('finds a run whose reply was lost, also if the store is away for a moment', async () => {
    const place = await openTestSession(test.store);
    const find = loseReply(new StoreError('lost'));
    find.mockRejectedValueOnce(new StoreError('away'));
    expect(await start(requestIn(place))).toMatchObject({
      state: 'started',
      run: { owner: place.owner, status: 'running' },
      canceled: [],
    });
    expect(find).toHaveBeenCalledTimes(2);
  });

  it('throws the error of the store if the run does not appear', async () => {
    const place = await openTestSession(test.store);
    const error = new StoreError('lost');
    const find = loseReply(error, { isStored: false });
    await expect(start(requestIn(place))).rejects.toBe(error);
    expect(find.mock.calls.length).toBeGreaterThan(1);
  });

  it.each([
    ['a run that a power failure would lose', new UnsyncedError('not synced')],
    ['a mistake', new TypeError('no such column')],
  ])('throws at once for %s', async (_, error) => {
    const place = await openTestSession(test.store);
    const find = loseReply(error);
    await expect(start(requestIn(place))).rejects.toBe(error);
    expect(find).not.toHaveBeenCalled();
  });
});
