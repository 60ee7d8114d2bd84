import { getEventListeners } from 'node:events';
import { syncBuiltinESMExports } from 'node:module';
import timers from 'node:timers/promises';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import {
  abortable,
  abortableIterable,
  ChangeSignal,
  retry,
  settlesWithin,
  TimeoutError,
  withTimeout,
} from './waiting.js';

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

const { signal } = new AbortController();

/** Ends each delay at once, or as `wait` does; returns the delays. */
function replaceSleep(wait = async (_: AbortSignal | undefined) => {}): unknown[] {
  const delays: unknown[] = [];
  const sleep = vi.spyOn(timers, 'setTimeout').mockImplementation(async (ms, value, options) => {
    delays.push(ms);
    await wait(options?.signal);
    return value as never;
  });
  syncBuiltinESMExports();
  onTestFinished(() => {
    sleep.mockRestore();
    syncBuiltinESMExports();
  });
  return delays;
}

/** Fails this many times. */
function createWork(failures = Number.POSITIVE_INFINITY) {
  const work = vi.fn(async () => {
    const attempt = work.mock.calls.length;
    if (attempt <= failures) throw new Error(`failure ${attempt}`);
    return 'done';
  });
  return work;
}

it('retry repeats work with delays that double up to the last one', async () => {
  const delays = replaceSleep();
  const failures: string[] = [];
  const onFailure = (error: unknown, attempt: number) => failures.push(`${attempt}: ${error}`);
  const options = { firstMs: 100, lastMs: 300, signal, onFailure };
  expect(await retry(createWork(4), options)).toBe('done');
  expect(delays).toEqual([100, 200, 300, 300]);
  expect(failures).toEqual([1, 2, 3, 4].map((n) => `${n}: Error: failure ${n}`));
});

it('retry rejects as the last of its attempts does, without a delay after it', async () => {
  const delays = replaceSleep();
  const options = { firstMs: 1, lastMs: 8, attempts: 3, signal };
  await expect(retry(createWork(), options)).rejects.toThrow('failure 3');
  expect(delays).toEqual([1, 2]);
});

it('retry makes one more attempt when the signal is aborted during a delay', async () => {
  const stopping = new AbortController();
  replaceSleep(async (given) => {
    stopping.abort();
    given?.throwIfAborted();
  });
  const options = { firstMs: 60_000, lastMs: 60_000, signal: stopping.signal };
  await expect(retry(createWork(), options)).rejects.toThrow('failure 2');
});

it('retry ends with what onFailure throws', async () => {
  const work = createWork();
  const onFailure = () => {
    throw new Error('hopeless');
  };
  const options = { firstMs: 1, lastMs: 1, signal, onFailure };
  await expect(retry(work, options)).rejects.toThrow('hopeless');
  expect(work).toHaveBeenCalledTimes(1);
});

it('ChangeSignal.notify ends all waits in progress, and no later one', async () => {
  const changes = new ChangeSignal();
  const waits = [changes.wait(), changes.wait({ ms: 60_000 })];
  changes.notify();
  expect(await Promise.all(waits)).toEqual([true, true]);
  expect(await changes.wait({ ms: 1 })).toBe(false);
});

it('ChangeSignal.wait ends with the signal, and leaves no listener', async () => {
  const changes = new ChangeSignal();
  const { signal, abort } = createSignal();
  const wait = changes.wait({ signal });
  abort();
  expect(await wait).toBe(false);
  expect(await changes.wait({ signal })).toBe(false);

  const other = createSignal();
  const changed = changes.wait({ signal: other.signal });
  changes.notify();
  expect(await changed).toBe(true);
  expect(getEventListeners(other.signal, 'abort')).toEqual([]);
});

it('a reader that reads, and then waits on a ChangeSignal, misses no change', async () => {
  const changes = new ChangeSignal();
  const items: number[] = [];
  const { signal, abort } = createSignal();
  const read = async () => {
    const seen: number[] = [];
    while (!signal.aborted) {
      const fresh = items.slice(seen.length);
      seen.push(...fresh);
      // A slow reader: changes happen meanwhile.
      if (fresh.length > 0) await Promise.resolve();
      else await changes.wait({ signal });
    }
    return seen;
  };
  const readers = [read(), read()];
  for (let i = 0; i < 100; i++) {
    items.push(i);
    changes.notify();
    for (let turns = i % 4; turns > 0; turns--) await Promise.resolve();
  }
  await new Promise((resolve) => setImmediate(resolve));
  abort();
  expect(await Promise.all(readers)).toEqual([items, items]);
});

function createSignal() {
  const controller = new AbortController();
  return { signal: controller.signal, abort: () => controller.abort() };
}
