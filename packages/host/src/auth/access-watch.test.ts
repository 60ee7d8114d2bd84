import { pino } from 'pino';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { AccessWatch } from './access-watch.js';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }));
afterEach(() => void vi.useRealTimers());

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
    logger: pino({ level: 'silent' }),
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
