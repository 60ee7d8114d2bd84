import { pino } from 'pino';
import { describe, expect, it, vi } from 'vitest';
import { engines, useStore } from '../../../test/support/test-database.js';
import type { Model, ModelPart } from '../../models/model.js';
import { ModelBudget, OutputLimit } from './model-limits.js';

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

  it('add stores without a check, and tries again by itself after a failure', async () => {
    const clock = newMorning();
    const stored: [string, number][] = [];
    let failures = 1;
    const usage = {
      total: async () => 0,
      add: async (of: string, tokens: number) => {
        if (failures-- > 0) throw new Error('away');
        stored.push([of, tokens]);
        return tokens;
      },
    };
    const budget = new ModelBudget({ usage, tokensPerDay: 10, logger, clock: () => clock });
    budget.add(use(7));
    await expect.poll(() => stored).toEqual([[new Date(clock).toISOString().slice(0, 10), 7]]);
    await budget.close();
    expect(stored).toHaveLength(1);
  });

  it('check counts what was stored since the total was read', async () => {
    const clock = newMorning();
    const budget = createBudget(10, () => clock);
    await budget.check();
    budget.add(use(10));
    await budget.close();
    await expect(budget.check()).rejects.toMatchObject({ code: 'model_budget_exhausted' });
  });

  it('neither reads nor stores anything without a limit, or for calls without tokens', async () => {
    const refuse = async () => Promise.reject(new Error('used'));
    const usage = { total: vi.fn(refuse), add: vi.fn(refuse) };
    const unlimited = new ModelBudget({ usage, tokensPerDay: Number.POSITIVE_INFINITY, logger });
    await unlimited.check();
    unlimited.add(use(5));
    await unlimited.close();
    const limited = new ModelBudget({ usage, tokensPerDay: 10, logger });
    limited.add({ model: 'm', input: 0, output: 0, cached: 0 });
    await limited.close();
    expect([usage.total.mock.calls, usage.add.mock.calls]).toEqual([[], []]);
  });

  it('check reads the total once for all that ask within 2 s', async () => {
    const clock = newMorning();
    const total = vi.fn((of: string) => test.store.modelUsage.total(of));
    const usage = { add: async () => 0, total };
    const budget = new ModelBudget({ usage, tokensPerDay: 10, logger, clock: () => clock });
    await Promise.all([budget.check(), budget.check()]);
    await budget.check();
    expect(total).toHaveBeenCalledTimes(1);
  });

  it('prunes days that are older than a month', async () => {
    const { modelUsage } = test.store;
    await modelUsage.add('2001-01-01', 5);
    await modelUsage.prune();
    expect(await modelUsage.total('2001-01-01')).toBe(0);
  });
});

describe('OutputLimit', () => {
  const text = (length: number): ModelPart => ({ type: 'text', text: 'x'.repeat(length) });

  /** A model that sends parts, and says whether its stream was closed early. */
  function createModel(parts: readonly ModelPart[]) {
    const state = { sent: 0, isClosed: false };
    const stream = async function* () {
      try {
        for (const part of parts) {
          state.sent++;
          yield part;
        }
      } finally {
        state.isClosed = state.sent < parts.length;
      }
    };
    return { state, model: { id: 'm', stream } as unknown as Model };
  }

  async function read(model: Model): Promise<ModelPart[]> {
    const parts: ModelPart[] = [];
    for await (const part of model.stream({} as never)) parts.push(part);
    return parts;
  }

  function openLimit(maxCharacters: number) {
    const reached: unknown[] = [];
    const limit = new OutputLimit({ maxCharacters, onReached: (error) => reached.push(error) });
    return { limit, reached };
  }

  const tooLong = expect.objectContaining({
    code: 'turn_too_long',
    message: expect.stringContaining('10 characters'),
  });

  it('passes on exactly as many characters as it allows', async () => {
    const { limit, reached } = openLimit(10);
    const { model } = createModel([text(4), { type: 'reasoning', text: 'xxxxxx' }]);
    expect(await read(limit.wrap(model))).toHaveLength(2);
    limit.assertNotReached();
    expect(reached).toEqual([]);
  });

  it('ends the stream of a model beyond it, refuses further calls, and reports it once', async () => {
    const { limit, reached } = openLimit(10);
    const { model, state } = createModel([text(6), text(5), text(1)]);
    const wrapped = limit.wrap(model);
    await expect(read(wrapped)).rejects.toThrow(tooLong);
    expect(state).toEqual({ sent: 2, isClosed: true });
    await expect(read(wrapped)).rejects.toThrow(tooLong);
    expect(state.sent).toBe(2);
    expect(() => limit.assertNotReached()).toThrow(tooLong);
    expect(() => limit.count(text(1))).toThrow(tooLong);
    await expect.poll(() => reached).toEqual([tooLong]);
  });

  it('counts the models of a turn together', async () => {
    const { limit } = openLimit(10);
    await read(limit.wrap(createModel([text(6)]).model));
    await expect(read(limit.wrap(createModel([text(5)]).model))).rejects.toThrow(tooLong);
  });

  it('counts a tool call by its name, its input and 500 more', () => {
    const call = { id: '1', name: 'send', input: '{"a":1}' };
    const { limit } = openLimit(500 + 4 + 7);
    limit.count({ type: 'tool-call', call });
    expect(() => limit.count(text(1))).toThrow(expect.objectContaining({ code: 'turn_too_long' }));
  });

  it('counts nothing for warnings and the end', () => {
    const { limit } = openLimit(0);
    limit.count({ type: 'warning', message: 'x' } as unknown as ModelPart);
    limit.count({ type: 'finish' } as unknown as ModelPart);
    expect(() => limit.count(text(1))).toThrow(expect.objectContaining({ code: 'turn_too_long' }));
  });

  it('closes the stream of the model when its reader stops', async () => {
    const { limit } = openLimit(10);
    const { model, state } = createModel([text(1), text(1)]);
    for await (const _ of limit.wrap(model).stream({} as never)) break;
    expect(state).toEqual({ sent: 1, isClosed: true });
  });
});
