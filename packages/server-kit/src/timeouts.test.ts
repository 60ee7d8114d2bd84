import { getEventListeners } from 'node:events';
import { describe, expect, it } from 'vitest';
import {
  abortable,
  abortableIterable,
  settlesWithin,
  TimeoutError,
  withTimeout,
} from './timeouts.js';

const never = () => new Promise<never>(() => undefined);
const listeners = (signal: AbortSignal) => getEventListeners(signal, 'abort').length;

describe('withTimeout', () => {
  it('settles as the work does', async () => {
    const limit = { ms: 60_000, message: 'late' };
    expect(await withTimeout(limit, async () => 1)).toBe(1);
    const failed = withTimeout(limit, () => Promise.reject(new Error('no')));
    await expect(failed).rejects.toThrow('no');
  });

  it('rejects with a TimeoutError and aborts the signal of the work', async () => {
    let received: AbortSignal | undefined;
    const work = withTimeout({ ms: 1, message: 'late' }, (signal) => {
      received = signal;
      return never();
    });
    await expect(work).rejects.toThrow(new TimeoutError('late'));
    expect(received?.reason).toBeInstanceOf(TimeoutError);
  });

  it("rejects with the reason of the caller's signal", async () => {
    const caller = new AbortController();
    const limit = { ms: 60_000, message: 'late', signal: caller.signal };
    const work = withTimeout(limit, never);
    caller.abort('stop');
    await expect(work).rejects.toBe('stop');
    await expect(withTimeout(limit, never)).rejects.toBe('stop');
  });

  it('waits as long as a timer can for a longer limit', async () => {
    const work = Promise.withResolvers<string>();
    const limited = withTimeout({ ms: 2 ** 40, message: 'late' }, () => work.promise);
    setImmediate(work.resolve, 'done');
    expect(await limited).toBe('done');
  });
});

describe('settlesWithin', () => {
  it('returns whether the work settled in time, fulfilled or rejected', async () => {
    expect(await settlesWithin(60_000, Promise.resolve())).toBe(true);
    expect(await settlesWithin(60_000, Promise.reject(new Error('no')))).toBe(true);
    expect(await settlesWithin(1, never())).toBe(false);
  });
});

describe('abortable', () => {
  it('does not start work for an aborted signal', async () => {
    let started = 0;
    const work = abortable(async () => ++started, AbortSignal.abort('stop'));
    await expect(work).rejects.toBe('stop');
    expect(started).toBe(0);
  });

  it('removes its listener when the work settles', async () => {
    const { signal } = new AbortController();
    expect(await abortable(async () => 1, signal)).toBe(1);
    await expect(abortable(() => Promise.reject(new Error('no')), signal)).rejects.toThrow('no');
    expect(listeners(signal)).toBe(0);
  });

  it('does not wait for work that ignores the signal', async () => {
    const caller = new AbortController();
    const work = abortable(never, caller.signal);
    caller.abort('stop');
    await expect(work).rejects.toBe('stop');
  });
});

describe('abortableIterable', () => {
  async function* count(to: number, closed: { value: boolean } = { value: false }) {
    try {
      for (let i = 1; i <= to; i++) yield i;
    } finally {
      closed.value = true;
    }
  }

  it('yields what the source does and removes its listener', async () => {
    const { signal } = new AbortController();
    const values = [];
    for await (const value of abortableIterable(count(3), signal)) values.push(value);
    expect(values).toEqual([1, 2, 3]);
    expect(listeners(signal)).toBe(0);
  });

  it('closes the source when the reader stops', async () => {
    const { signal } = new AbortController();
    const closed = { value: false };
    for await (const _ of abortableIterable(count(3, closed), signal)) break;
    await expect.poll(() => closed.value).toBe(true);
    expect(listeners(signal)).toBe(0);
  });

  it('rejects at once when the signal is aborted during a step that hangs', async () => {
    const caller = new AbortController();
    const source = { [Symbol.asyncIterator]: () => ({ next: never }) };
    const iterator = abortableIterable(source, caller.signal)[Symbol.asyncIterator]();
    const step = iterator.next();
    caller.abort('stop');
    await expect(step).rejects.toBe('stop');
    await expect(iterator.next()).rejects.toBe('stop');
  });

  it('passes on the error of the source', async () => {
    const { signal } = new AbortController();
    const source = {
      [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(new Error('no')) }),
    };
    const iterator = abortableIterable(source, signal)[Symbol.asyncIterator]();
    await expect(iterator.next()).rejects.toThrow('no');
    expect(listeners(signal)).toBe(0);
  });
});
