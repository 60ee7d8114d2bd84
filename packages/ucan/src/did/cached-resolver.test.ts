import type { Result } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { createCachedResolver } from './cached-resolver.js';
import type { DidError, DidKeys } from './did-resolver.js';

const KEYS: Result<DidKeys, DidError> = { ok: [new Uint8Array(32)] };
const failure = (code: DidError['code']): Result<DidKeys, DidError> => ({
  error: { code, detail: '' },
});

/** A cache on a hand-turned clock over a source that counts. */
function setUp(first: Result<DidKeys, DidError>, options = {}) {
  const state = { now: 1000, asked: [] as string[], answer: first };
  const resolver = createCachedResolver({
    clock: () => state.now,
    resolver: {
      async resolve(did) {
        state.asked.push(did);
        return state.answer;
      },
    },
    ...options,
  });
  return { state, resolver, resolve: (did = 'did:ixo:a') => resolver.resolve(did) };
}

describe('createCachedResolver', () => {
  it.each([
    [undefined, 300],
    [60, 60],
    [5, 60],
    [9999, 300],
  ])('keeps keys with keysTtlSeconds %s for %i s', async (keysTtlSeconds, kept) => {
    const { state, resolve } = setUp(KEYS, { keysTtlSeconds });
    await resolve();
    state.now += kept - 1;
    expect(await resolve()).toBe(KEYS);
    expect(state.asked).toHaveLength(1);
    state.now += 1;
    await resolve();
    expect(state.asked).toHaveLength(2);
  });

  it.each(['did_not_found', 'did_invalid', 'did_deactivated'] as const)(
    'keeps %s for 10 s at most',
    async (code) => {
      const { state, resolve } = setUp(failure(code), { errorTtlSeconds: 60 });
      await resolve();
      state.now += 9;
      expect((await resolve()).error?.code).toBe(code);
      expect(state.asked).toHaveLength(1);
      state.now += 1;
      state.answer = KEYS;
      expect(await resolve()).toBe(KEYS);
    },
  );

  it.each(['did_unavailable', 'did_unsupported'] as const)('never keeps %s', async (code) => {
    const { state, resolve } = setUp(failure(code));
    await resolve();
    state.answer = KEYS;
    expect(await resolve()).toBe(KEYS);
  });

  it('forgets the keys of a DID that is refused later', async () => {
    const { state, resolve } = setUp(KEYS);
    await resolve();
    state.now += 300;
    state.answer = failure('did_deactivated');
    await resolve();
    expect((await resolve()).error?.code).toBe('did_deactivated');
    expect(state.asked).toHaveLength(2);
  });

  it('asks once for callers at the same time', async () => {
    const { state, resolve } = setUp(failure('did_unavailable'));
    await Promise.all([resolve(), resolve(), resolve('did:ixo:b')]);
    expect(state.asked).toEqual(['did:ixo:a', 'did:ixo:b']);
  });

  it('drops what was used longest ago, but no keys for invented DIDs', async () => {
    const { state, resolve } = setUp(KEYS, { cacheBytes: 1200 });
    await resolve('did:ixo:1');
    await resolve('did:ixo:2');
    state.answer = failure('did_not_found');
    for (let i = 0; i < 10; i++) await resolve(`did:ixo:invented${i}`);
    state.asked.length = 0;
    await resolve('did:ixo:1');
    expect(state.asked).toEqual([]);
    state.answer = KEYS;
    await resolve('did:ixo:3');
    await resolve('did:ixo:2');
    expect(state.asked).toEqual(['did:ixo:3', 'did:ixo:2']);
  });

  it('says whether it would have to ask', async () => {
    const { state, resolver } = setUp(KEYS);
    expect(resolver.needsLookup?.('did:ixo:a')).toBe(true);
    await resolver.resolve('did:ixo:a');
    expect(resolver.needsLookup?.('did:ixo:a')).toBe(false);
    state.now += 300;
    expect(resolver.needsLookup?.('did:ixo:a')).toBe(true);
  });

  it('has at most 50 lookups in progress', async () => {
    const { promise, resolve: answer } = Promise.withResolvers<typeof KEYS>();
    const resolver = createCachedResolver({ resolver: { resolve: () => promise } });
    const asked = Array.from({ length: 51 }, (_, n) => resolver.resolve(`did:ixo:${n}`));
    expect((await asked[50])?.error?.code).toBe('did_busy');
    answer(KEYS);
    expect((await Promise.all(asked.slice(0, 50))).every(({ ok }) => ok)).toBe(true);
    expect(await resolver.resolve('did:ixo:50')).toHaveProperty('ok');
  });
});
