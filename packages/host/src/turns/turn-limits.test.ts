import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { engines, useStore } from '../../test/support/test-database.js';
import { ModelBudget } from './turn-limits.js';

const logger = pino({ level: 'silent' });
const use = (tokens: number) => ({ model: 'm', input: tokens - 1, output: 1, cached: 0 });
const HOUR_MS = 60 * 60 * 1000;

/** A day that no other test of this database spends from. */
let day = 0;
const newMorning = () => Date.UTC(2030, 0, ++day, 6);

describe.each(engines)('ModelBudget on %s', (engine) => {
  const test = useStore(engine);
  const createBudget = (tokensPerDay: number, clock: () => number) =>
    new ModelBudget({ usage: test.store.modelUsage, tokensPerDay, logger, clock });

  it('is shared by all hosts and reports when it is available again', async () => {
    const clock = newMorning();
    const [one, two] = [createBudget(100, () => clock), createBudget(100, () => clock)];
    await one.check();
    for (let i = 0; i < 10; i++) one.add(use(5));
    for (let i = 0; i < 10; i++) two.add(use(5));
    await Promise.all([one.close(), two.close()]);
    const exhausted = { code: 'model_budget_exhausted', retryAfterSeconds: (18 * HOUR_MS) / 1000 };
    await expect(two.check()).rejects.toMatchObject(exhausted);
    await expect(createBudget(100, () => clock).check()).rejects.toMatchObject(exhausted);
    await expect(createBudget(101, () => clock).check()).resolves.toBeUndefined();
  });

  it('starts again on the next UTC day', async () => {
    let clock = newMorning();
    day += 1;
    const budget = createBudget(10, () => clock);
    budget.add(use(10));
    await expect(budget.check()).rejects.toMatchObject({ code: 'model_budget_exhausted' });
    await budget.close();
    clock += 24 * HOUR_MS;
    await expect(budget.check()).resolves.toBeUndefined();
  });

  it('counts usage that is not stored yet, and stores it later', async () => {
    const clock = newMorning();
    const { modelUsage } = test.store;
    let isAway = true;
    const usage = {
      total: (of: string) => modelUsage.total(of),
      add: async (of: string, tokens: number) => {
        if (isAway) throw new Error('away');
        return modelUsage.add(of, tokens);
      },
    };
    const budget = new ModelBudget({ usage, tokensPerDay: 10, logger, clock: () => clock });
    budget.add(use(10));
    await expect(budget.check()).rejects.toMatchObject({ code: 'model_budget_exhausted' });
    isAway = false;
    await budget.close();
    expect(await modelUsage.total(new Date(clock).toISOString().slice(0, 10))).toBe(10);
  });

  it('check does not use the total of the previous day on a new day', async () => {
    let clock = newMorning();
    day += 1;
    const { modelUsage } = test.store;
    await modelUsage.add(new Date(clock + 24 * HOUR_MS).toISOString().slice(0, 10), 10);
    const held = Promise.withResolvers<void>();
    const usage = {
      add: (of: string, tokens: number) => modelUsage.add(of, tokens),
      total: async (of: string) => {
        await held.promise;
        return modelUsage.total(of);
      },
    };
    const budget = new ModelBudget({ usage, tokensPerDay: 10, logger, clock: () => clock });
    const before = budget.check();
    clock += 24 * HOUR_MS;
    const after = budget.check();
    held.resolve();
    const exhausted = { code: 'model_budget_exhausted' };
    await Promise.all([
      expect(before).rejects.toMatchObject(exhausted),
      expect(after).rejects.toMatchObject(exhausted),
    ]);
    await expect(budget.check()).rejects.toMatchObject(exhausted);
  });

  it('check throws while the total cannot be read', async () => {
    const usage = { add: async () => 0, total: async () => Promise.reject(new Error('away')) };
    const budget = new ModelBudget({ usage, tokensPerDay: 10, logger });
    await expect(budget.check()).rejects.toThrow('away');
  });

  it('prunes days that are older than a month', async () => {
    const { modelUsage } = test.store;
    await modelUsage.add('2001-01-01', 5);
    await modelUsage.prune();
    expect(await modelUsage.total('2001-01-01')).toBe(0);
  });
});
