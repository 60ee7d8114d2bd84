import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { MemoryHostBus } from '../bus/host-bus.js';
import type { ListedUser } from '../store/operators/operator-store.js';
import { AccessWatch, CachedList } from './access-watch.js';
import { CallerAllowList } from './caller-allow-list.js';
import { OutageRevocations } from './operators.js';

const logger = pino({ level: 'silent' });
afterEach(() => void vi.useRealTimers());

describe('AccessWatch', () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }));

  /** A watch over a store that `ended` and `state` describe; `asked` has the ids of each query. */
  function open() {
    const ended = new Set<string>();
    const asked: (readonly string[])[] = [];
    const reported: string[] = [];
    const state = { isAway: false };
    let onMissed = () => {};
    const watch = new AccessWatch({
      findEnded: async (ids) => {
        asked.push(ids);
        if (state.isAway) throw new Error('the store is away');
        return ids.filter((id) => ended.has(id));
      },
      onEnded: (id) => {
        reported.push(id);
        watch.end(id);
      },
      bus: {
        onMissed: (listener) => {
          onMissed = listener;
          return () => undefined;
        },
      },
      logger,
    });
    return { watch, ended, asked, reported, state, reconnect: () => onMissed() };
  }

  const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);

  it('end calls every listener of the id, and those of no other', () => {
    const { watch } = open();
    const called: string[] = [];
    watch.watch(['a'], () => called.push('first'));
    watch.watch(['b', 'a'], () => called.push('second'));
    watch.watch(['b'], () => called.push('other'));
    watch.end('a');
    expect(called).toEqual(['first', 'second']);
    watch.end('b');
    expect(called).toEqual(['first', 'second', 'second', 'other']);
    watch.end('unknown');
    expect(called).toHaveLength(4);
  });

  it('a listener that is stopped is called for none of its ids, and the others still are', () => {
    const { watch } = open();
    const called: string[] = [];
    const stop = watch.watch(['a', 'b'], () => called.push('stopped'));
    watch.watch(['a'], () => called.push('kept'));
    stop();
    stop();
    watch.end('a');
    watch.end('b');
    expect(called).toEqual(['kept']);
  });

  it('all listeners are called although each stops when it is', () => {
    const { watch } = open();
    const called: string[] = [];
    for (const name of ['first', 'second']) {
      const stop = watch.watch(['a'], () => {
        called.push(name);
        stop();
      });
    }
    watch.end('a');
    watch.end('a');
    expect(called).toEqual(['first', 'second']);
  });

  it('what ended without a message is found after 3 s, and again every 3 s', async () => {
    const { watch, ended, asked, reported } = open();
    const onEnded = vi.fn();
    watch.watch(['a'], onEnded);
    watch.watch(['b'], () => undefined);
    await pass(2_999);
    expect(asked).toEqual([]);
    await pass(1);
    expect(asked).toEqual([['a', 'b']]);
    expect(onEnded).not.toHaveBeenCalled();
    ended.add('a');
    await pass(3_000);
    expect(onEnded).toHaveBeenCalledTimes(1);
    expect(reported).toEqual(['a']);
  });

  it('one query serves all who watch at the same time', async () => {
    const { watch, asked } = open();
    watch.watch(['a'], () => undefined);
    await pass(1_000);
    watch.watch(['b', 'a'], () => undefined);
    await pass(2_000);
    expect(asked).toEqual([['a', 'b']]);
    await pass(2_999);
    expect(asked).toHaveLength(1);
  });

  it('the store is not asked about ids that have no listener any more', async () => {
    const { watch, asked } = open();
    const stop = watch.watch(['a', 'b'], () => undefined);
    const stopOther = watch.watch(['b'], () => undefined);
    stop();
    await pass(3_000);
    expect(asked).toEqual([['b']]);
    stopOther();
    await pass(60_000);
    expect(asked).toHaveLength(1);
    expect(vi.getTimerCount()).toBe(0);
    watch.watch(['c'], () => undefined);
    await pass(3_000);
    expect(asked).toEqual([['b'], ['c']]);
  });

  it('no timer runs without a listener', () => {
    const { watch } = open();
    watch.watch([], () => undefined);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('a query has at most 200 ids', async () => {
    const { watch, asked, ended, reported } = open();
    const ids = Array.from({ length: 401 }, (_, i) => `id ${i}`);
    for (const id of ids) watch.watch([id], () => undefined);
    for (const id of ['id 0', 'id 200', 'id 400']) ended.add(id);
    await pass(3_000);
    expect(asked.map(({ length }) => length)).toEqual([200, 200, 1]);
    expect(asked.flat()).toEqual(ids);
    expect(reported).toEqual(['id 0', 'id 200', 'id 400']);
  });

  it('after messages may have been missed the store is asked at once, and then 3 s later', async () => {
    const { watch, ended, asked, reported, reconnect } = open();
    watch.watch(['a'], () => undefined);
    ended.add('a');
    await pass(2_000);
    reconnect();
    await pass(0);
    expect(reported).toEqual(['a']);
    await pass(2_999);
    expect(asked).toHaveLength(1);
    await pass(1);
    expect(asked).toHaveLength(2);
    expect(vi.getTimerCount()).toBe(1);
  });

  it('missed messages without a listener ask nothing and start no timer', async () => {
    const { asked, reconnect } = open();
    reconnect();
    await pass(60_000);
    expect(asked).toEqual([]);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('no caller loses access while the store is away, and what ended is found when it is back', async () => {
    const { watch, ended, reported, state } = open();
    const onEnded = vi.fn();
    watch.watch(['a'], onEnded);
    ended.add('a');
    state.isAway = true;
    await pass(9_000);
    expect(onEnded).not.toHaveBeenCalled();
    state.isAway = false;
    await pass(3_000);
    expect(onEnded).toHaveBeenCalledTimes(1);
    expect(reported).toEqual(['a']);
  });
});

/** A list in a store that may be away. */
function createStored() {
  const dids = new Set<string>();
  let isAway = false;
  const answer = async <T>(value: () => T): Promise<T> => {
    if (isAway) throw new Error('connect ECONNREFUSED');
    return value();
  };
  return {
    dids,
    setAway: (away: boolean) => {
      isAway = away;
    },
    answer,
    list: () =>
      answer(() => [...dids].map((did): ListedUser => ({ did, note: undefined, createdAt: 0 }))),
    add: (did: string) => answer(() => dids.size !== dids.add(did).size),
    remove: (did: string) => answer(() => dids.delete(did)),
  };
}

function createAllowList(stored: ReturnType<typeof createStored>) {
  const bus = new MemoryHostBus('host', logger);
  const allowList = new CallerAllowList({
    listed: undefined,
    callers: {} as never,
    blocked: stored,
    bus,
    logger,
  });
  return { allowList };
}

it('CallerAllowList keeps a blocked caller out while the store is away', async () => {
  vi.useFakeTimers();
  const stored = createStored();
  const { allowList } = createAllowList(stored);
  await allowList.setBlocked('did:mallory', true);
  stored.setAway(true);
  await vi.advanceTimersByTimeAsync(30_000);
  expect(await allowList.findExclusion('did:mallory')).toBe('caller_blocked');
  // Nothing shows that another one is blocked: the list was read a moment before.
  stored.setAway(false);
  await vi.advanceTimersByTimeAsync(4_000);
  expect(await allowList.findExclusion('did:alice')).toBeUndefined();
  stored.setAway(true);
  await vi.advanceTimersByTimeAsync(4_000);
  expect(await allowList.findExclusion('did:alice')).toBeUndefined();
  await vi.advanceTimersByTimeAsync(120_000);
  await expect(allowList.findExclusion('did:alice')).rejects.toThrow(
    expect.objectContaining({ code: 'store_unavailable' }),
  );
  expect(await allowList.findExclusion('did:mallory')).toBe('caller_blocked');
});

it('CallerAllowList admits no caller before it could read who is blocked', async () => {
  const stored = createStored();
  stored.setAway(true);
  const { allowList } = createAllowList(stored);
  await expect(allowList.assertAllowed('did:alice')).rejects.toThrow(
    expect.objectContaining({ code: 'store_unavailable' }),
  );
});

it('CallerAllowList unblocks at once, also while the list is being read', async () => {
  const stored = createStored();
  const { allowList } = createAllowList(stored);
  await allowList.setBlocked('did:bob', true);
  const asked = allowList.findExclusion('did:bob');
  await allowList.setBlocked('did:bob', false);
  await asked;
  expect(await allowList.findExclusion('did:bob')).toBeUndefined();
});

it('CachedList.start waits for a store that is slow, so that no caller is refused after it', async () => {
  vi.useFakeTimers();
  const list = new CachedList({
    read: () => new Promise((resolve) => setTimeout(() => resolve(['did:mallory']), 2_000)),
    logger,
  });
  const started = list.start();
  await vi.advanceTimersByTimeAsync(2_000);
  await started;
  expect([list.isRecent, await list.has('did:mallory')]).toEqual([true, true]);
  list.close();
});

it('CachedList.start reads without requests, so that the list is recent when the store goes away', async () => {
  vi.useFakeTimers();
  const stored = createStored();
  const list = new CachedList({
    read: async () => (await stored.list()).map(({ did }) => did),
    logger,
  });
  void list.start();
  stored.dids.add('did:operator');
  await vi.advanceTimersByTimeAsync(6_000);
  stored.setAway(true);
  await vi.advanceTimersByTimeAsync(6_000);
  expect(list.knows('did:operator')).toBe(true);
  list.close();
});

const toRevocation = (cid: string) => ({ cid, expiresAt: Date.now() / 1000 + 900 });

it('OutageRevocations refuses revoked logins while the store is away, and everything if it knows too little', async () => {
  vi.useFakeTimers();
  const stored = createStored();
  const revocations = new OutageRevocations({
    stored: {
      has: (cid) => stored.answer(() => stored.dids.has(cid)),
      listExpiring: () => stored.answer(() => [...stored.dids].map(toRevocation)),
    },
    listed: ['did:operator'],
    added: { list: async () => [] },
    maxTtlSeconds: 900,
    logger,
  });
  stored.setAway(true);
  await expect(revocations.isRevoked('a')).rejects.toThrow('ECONNREFUSED');
  stored.setAway(false);
  stored.dids.add('a');
  void revocations.start();
  await vi.advanceTimersByTimeAsync(6_000);
  stored.setAway(true);
  expect(await revocations.isRevoked('a')).toBe(true);
  expect(await revocations.isRevoked('b')).toBe(false);
  stored.setAway(false);
  for (let i = 0; i < 10_001; i++) stored.dids.add(String(i));
  await vi.advanceTimersByTimeAsync(6_000);
  stored.setAway(true);
  await vi.advanceTimersByTimeAsync(3_000);
  await expect(revocations.isRevoked('b')).rejects.toThrow('ECONNREFUSED');
  revocations.close();
});

it('OutageRevocations asks the store while it answers, and for 2 s not at all after it failed', async () => {
  vi.useFakeTimers();
  const stored = createStored();
  let asked = 0;
  const revocations = new OutageRevocations({
    stored: {
      has: (cid) => {
        asked++;
        return stored.answer(() => stored.dids.has(cid));
      },
      listExpiring: () => stored.answer(() => [...stored.dids].map(toRevocation)),
    },
    listed: ['did:operator'],
    added: { list: async () => [] },
    maxTtlSeconds: 900,
    logger,
  });
  void revocations.start();
  await vi.advanceTimersByTimeAsync(1);
  stored.dids.add('just revoked');
  expect(await revocations.isRevoked('just revoked')).toBe(true);
  stored.setAway(true);
  for (let i = 0; i < 10; i++) expect(await revocations.isRevoked('a')).toBe(false);
  expect(asked).toBe(2);
  stored.setAway(false);
  stored.dids.add('revoked after it');
  await vi.advanceTimersByTimeAsync(2_000);
  expect(await revocations.isRevoked('revoked after it')).toBe(true);
  expect(asked).toBe(3);
  revocations.close();
});

it('OutageRevocations does not count a list that arrived too late to be used', async () => {
  vi.useFakeTimers();
  let isAway = false;
  const revocations = new OutageRevocations({
    stored: {
      has: async () => {
        if (isAway) throw new Error('ECONNREFUSED');
        return false;
      },
      listExpiring: vi
        .fn()
        .mockRejectedValueOnce(new Error('ECONNREFUSED'))
        .mockImplementation(async () => {
          await new Promise((resolve) => setTimeout(resolve, 1_200));
          return [toRevocation('a')];
        }),
    },
    listed: ['did:operator'],
    added: { list: async () => [] },
    maxTtlSeconds: 900,
    logger,
  });
  await revocations.start();
  await vi.advanceTimersByTimeAsync(6_300);
  isAway = true;
  await expect(revocations.isRevoked('a')).rejects.toThrow('ECONNREFUSED');
  revocations.close();
});
