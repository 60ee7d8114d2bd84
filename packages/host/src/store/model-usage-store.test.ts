import { describe, expect, it } from 'vitest';
import { useStore } from '../../test/support/test-database.js';
import { toUtcDay } from './model-usage-store.js';

describe('ModelUsageStore', () => {
  let now = Date.UTC(2026, 2, 31, 23, 59, 59, 999);
  const test = useStore('sqlite', { clock: () => now });

  it('add returns the total of the day, which all hosts on the database share', async () => {
    const { modelUsage } = test.store;
    const other = (await test.another()).modelUsage;
    expect(await modelUsage.total('2026-01-01')).toBe(0);
    expect(await modelUsage.add('2026-01-01', 100)).toBe(100);
    expect(await other.add('2026-01-01', 20)).toBe(120);
    expect(await modelUsage.add('2026-01-02', 3)).toBe(3);
    expect(await modelUsage.total('2026-01-01')).toBe(120);
    expect(await other.total('2026-01-02')).toBe(3);
    expect(await modelUsage.total('2026-01-03')).toBe(0);
  });

  it('concurrent hosts lose no tokens', async () => {
    const stores = [test.store.modelUsage, (await test.another()).modelUsage];
    const day = '2026-02-01';
    await Promise.all(Array.from({ length: 20 }, (_, i) => stores[i % 2]?.add(day, 5)));
    expect(await test.store.modelUsage.total(day)).toBe(100);
  });

  it('prune deletes the days that are more than 31 days ago', async () => {
    const { modelUsage } = test.store;
    for (const day of ['2026-02-27', '2026-02-28', '2026-03-31']) await modelUsage.add(day, 1);
    const readTotals = () =>
      Promise.all(['2026-02-27', '2026-02-28', '2026-03-31'].map((day) => modelUsage.total(day)));
    await modelUsage.prune();
    expect(await readTotals()).toEqual([0, 1, 1]);
    // The next day in UTC.
    now += 1;
    await modelUsage.prune();
    expect(await readTotals()).toEqual([0, 0, 1]);
  });

  it('toUtcDay changes at midnight in UTC', () => {
    expect(toUtcDay(now - 1)).toBe('2026-03-31');
    expect(toUtcDay(now)).toBe('2026-04-01');
  });
});
