import { expect, it, onTestFinished, vi } from 'vitest';
import { engines, useStore } from '../../test/support/test-database.js';
import { WriteProbe } from './write-probe.js';

it('WriteProbe writes once for all who ask within a second', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  onTestFinished(() => void vi.useRealTimers());
  let writes = 0;
  const probe = new WriteProbe({
    probeWrite: async () => {
      writes += 1;
    },
  });
  const results = await Promise.all(Array.from({ length: 1_000 }, () => probe.check()));
  expect(new Set(results)).toEqual(new Set(['writable']));
  vi.advanceTimersByTime(999);
  expect(await probe.check()).toBe('writable');
  expect(writes).toBe(1);
  vi.advanceTimersByTime(1);
  expect(await probe.check()).toBe('writable');
  expect(writes).toBe(2);
});

it('WriteProbe does not wait for a write that hangs, and starts no second one', async () => {
  let writes = 0;
  const probe = new WriteProbe({
    probeWrite: () => {
      writes += 1;
      return new Promise(() => {});
    },
  });
  expect(await Promise.all([probe.check(), probe.check()])).toEqual(['timeout', 'timeout']);
  expect(await probe.check()).toBe('timeout');
  expect(writes).toBe(1);
});

it.each([
  [Object.assign(new Error('full'), { code: 'ERR_SQLITE_ERROR', errcode: 13 }), 'full'],
  [Object.assign(new Error('refused'), { code: 'ECONNREFUSED' }), 'passing'],
  [new Error('a bug'), 'unknown-error'],
])('WriteProbe tells %s as %s', async (error, result) => {
  expect(await new WriteProbe({ probeWrite: () => Promise.reject(error) }).check()).toBe(result);
});

it.each(engines)('probeWrite writes to %s and leaves nothing behind', async (engine) => {
  const { store } = databases[engine];
  await Promise.all(Array.from({ length: 20 }, () => store.probeWrite()));
  expect(await store.idempotency.prune()).toBe(0);
  await store.close();
  await expect(store.probeWrite()).rejects.toThrow();
});

const databases = { sqlite: useStore('sqlite'), postgres: useStore('postgres') };
