import type { MessageGate, ModelUse, TurnHold } from '@sibyl/plugin-kit';
import type { LoadedPlugin } from '@sibyl/plugin-kit/host';
import { OracleError } from '@sibyl/protocol';
import { pino } from 'pino';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { replaceSleep, waitForAbort } from '../../../test/support/replaced-sleep.js';
import { type Meter, unmetered } from '../../agent/agent.js';
import { Metrics } from '../../observability/metrics.js';
import { Hooks } from '../plugins/hooks.js';
import { Gates } from './gates.js';

const request = { owner: 'did:a', sessionId: 's', requestId: 'r', model: 'm', length: 1 };
const USE: ModelUse = { model: 'm', input: 2, output: 1, cached: 1 };

type Admit = MessageGate['admit'];

interface Setup {
  readonly admits?: readonly Admit[];
  readonly budget?: Meter;
  readonly timeoutMs?: number;
}

/** Gates of plugins p0, p1 and so on, with what they log. */
function setUp({ admits = [], budget = unmetered, timeoutMs = 1000 }: Setup = {}) {
  const log: Record<string, unknown>[] = [];
  const logger = pino({}, { write: (line) => void log.push(JSON.parse(line)) });
  const metrics = new Metrics();
  const observe = vi.spyOn(metrics, 'observe');
  const plugins = admits.map(
    (admit, i) => ({ name: `p${i}`, gate: { admit } }) as Partial<LoadedPlugin> as LoadedPlugin,
  );
  const hooks = new Hooks(logger, timeoutMs, metrics);
  const gates = new Gates({ plugins, hooks, budget, logger });
  const called = () => observe.mock.calls.map(([, labels]) => `${labels.plugin} ${labels.hook}`);
  return { gates, log, called };
}

/** A gate that holds every turn and records what it is charged. */
function holding(more: Partial<TurnHold> = {}) {
  const settled: (readonly ModelUse[])[] = [];
  const settle = async (used: readonly ModelUse[]) => void settled.push(used);
  const admit = vi.fn<Admit>(async () => ({ settle, ...more }));
  return { settled, admit };
}

/** Whether all accounts are settled. */
async function isSettled(gates: Gates, log: readonly unknown[]): Promise<boolean> {
  const before = log.length;
  await gates.close(0, 0);
  return log.length === before;
}

describe('Gates.admit', () => {
  it('asks the gates in order with the request, and needs a hold of none', async () => {
    const order: string[] = [];
    const admits = ['a', 'b'].map((name) =>
      vi.fn<Admit>(async () => {
        order.push(name);
        return undefined;
      }),
    );
    const { gates, log, called } = setUp({ admits });
    await (await gates.admit(request)).settle();
    expect(order).toEqual(['a', 'b']);
    for (const admit of admits) expect(admit.mock.calls).toEqual([[request]]);
    expect(called()).toEqual(['p0 getMessageGate', 'p1 getMessageGate']);
    expect(log).toEqual([]);
  });

  it('settles earlier holds without usage if a later gate refuses, and asks no further one', async () => {
    const refusal = new OracleError('insufficient_credit');
    const [first, third] = [holding(), holding()];
    const { gates, log } = setUp({
      admits: [first.admit, () => Promise.reject(refusal), third.admit],
    });
    await expect(gates.admit(request)).rejects.toBe(refusal);
    await expect.poll(() => first.settled).toEqual([[]]);
    expect(third.admit).not.toHaveBeenCalled();
    await expect.poll(() => isSettled(gates, log)).toBe(true);
  });

  it('asks no gate, and leaves no account open, if the budget of the host is used up', async () => {
    const refusal = new OracleError('model_unavailable');
    const budget = { ...unmetered, check: () => Promise.reject(refusal) };
    const { admit } = holding();
    const { gates, log } = setUp({ admits: [admit], budget });
    await expect(gates.admit(request)).rejects.toBe(refusal);
    expect(admit).not.toHaveBeenCalled();
    await expect.poll(() => isSettled(gates, log)).toBe(true);
  });

  it.each<[string, unknown]>([
    ['null', null],
    ['a text', 'yes'],
    ['a hold that cannot be settled', { settle: true }],
  ])('refuses the message if a gate gives %s', async (_, hold) => {
    const first = holding();
    const admit = (async () => hold) as Admit;
    const { gates, log } = setUp({ admits: [first.admit, admit] });
    await expect(gates.admit(request)).rejects.toMatchObject({
      code: 'gate_unavailable',
      retryAfterSeconds: 5,
    });
    expect(log).toMatchObject([{ plugin: 'p1', hook: 'getMessageGate', level: 50 }]);
    await expect.poll(() => first.settled).toEqual([[]]);
  });

  it('settles a hold that arrives after the gate was too slow, without usage, and tries again', async () => {
    const late = Promise.withResolvers<TurnHold | undefined>();
    const { gates } = setUp({ admits: [() => late.promise], timeoutMs: 20 });
    await expect(gates.admit(request)).rejects.toMatchObject({ code: 'gate_unavailable' });
    const settle = vi.fn(async () => {});
    settle.mockRejectedValueOnce(new Error('away'));
    late.resolve({ settle });
    await expect.poll(() => settle.mock.calls).toEqual([[[]], [[]]]);
  });

  it('refuses messages while 10 000 turns are not settled', async () => {
    const { gates } = setUp();
    const accounts = [];
    for (let i = 0; i < 10_000; i++) accounts.push(await gates.admit(request));
    await expect(gates.admit(request)).rejects.toMatchObject({
      code: 'gate_unavailable',
      retryAfterSeconds: 5,
    });
    await accounts[0]?.settle();
    await gates.admit(request);
  });
});

describe('TurnAccount', () => {
  it('counts each use for the budget of the host, except an empty one', async () => {
    const add = vi.fn();
    const { gates } = setUp({ budget: { ...unmetered, add } });
    const account = await gates.admit(request);
    const empty = { model: 'm', input: 0, output: 0, cached: 0 };
    for (const use of [USE, empty, { ...empty, output: 1 }, { ...empty, input: 1 }])
      account.add(use);
    expect(add.mock.calls).toEqual([[USE], [{ ...empty, output: 1 }], [{ ...empty, input: 1 }]]);
    expect(account.used).toEqual([{ model: 'm', input: 3, output: 2, cached: 1 }]);
  });

  it('adds up tokens and, where models have prices, costs', async () => {
    const { gates } = setUp();
    const account = await gates.admit(request);
    expect(account.total).toEqual({ input: 0, output: 0, cached: 0, models: [] });
    account.add(USE);
    expect(account.total).not.toHaveProperty('cost');
    account.add({ ...USE, cost: 0.5 });
    account.add({ ...USE, model: 'n', cost: 0.25 });
    account.add({ ...USE, model: 'o' });
    const models = [
      { model: 'm', input: 4, output: 2, cached: 2, cost: 0.5 },
      { ...USE, model: 'n', cost: 0.25 },
      { ...USE, model: 'o' },
    ];
    expect(account.total).toEqual({ input: 8, output: 4, cached: 4, cost: 0.75, models });
    expect(account.used).toEqual(models);
  });

  it('check asks the budget, then only the gates that want it, with the usage until then', async () => {
    const order: string[] = [];
    const budget = { ...unmetered, check: async () => void order.push('budget') };
    const check = vi.fn(async () => void order.push('gate'));
    const admits = [holding().admit, holding({ check }).admit];
    const { gates, called } = setUp({ admits, budget });
    const account = await gates.admit(request);
    account.add(USE);
    order.length = 0;
    await account.check();
    expect(order).toEqual(['budget', 'gate']);
    expect(check.mock.calls).toEqual([[[USE]]]);
    // The metrics contain no time of a check that a plugin does not have.
    expect(called()).not.toContain('p0 TurnHold.check');
    expect(called()).toContain('p1 TurnHold.check');
  });

  it('check asks no gate if the budget of the host is used up', async () => {
    const refusal = new OracleError('model_unavailable');
    const checks = [async () => undefined, () => Promise.reject(refusal)];
    const budget = { ...unmetered, check: () => checks.shift()?.() ?? Promise.resolve() };
    const check = vi.fn();
    const { gates } = setUp({ admits: [holding({ check }).admit], budget });
    const account = await gates.admit(request);
    await expect(account.check()).rejects.toBe(refusal);
    expect(check).not.toHaveBeenCalled();
  });

  it('settle charges every gate once, even if one of them fails at first', async () => {
    replaceSleep(async () => undefined);
    const settle = vi.fn<TurnHold['settle']>(async () => undefined);
    settle.mockRejectedValueOnce(new Error('away'));
    const other = holding();
    const { gates, log } = setUp({ admits: [holding({ settle }).admit, other.admit] });
    const account = await gates.admit(request);
    account.add(USE);
    expect(account.settle()).toBe(account.settle());
    await account.settle();
    expect(settle.mock.calls).toEqual([[[USE]], [[USE]]]);
    expect(other.settled).toEqual([[USE]]);
    expect(log).toMatchObject([{ level: 40, plugin: 'p0', hook: 'TurnHold.settle' }]);
    expect(await isSettled(gates, log)).toBe(true);
  });
});

describe('a gate that cannot settle', () => {
  it('is asked 12 times, after up to 10 s each, and the log has what it was not charged', async () => {
    const delays = replaceSleep(async () => undefined);
    const settle = vi.fn(() => Promise.reject(new Error('away')));
    const { gates, log } = setUp({ admits: [holding({ settle }).admit] });
    const account = await gates.admit(request);
    account.add(USE);
    await account.settle();
    expect(settle).toHaveBeenCalledTimes(12);
    const doubled = [200, 400, 800, 1600, 3200, 6400];
    expect(delays.slice(0, 11)).toEqual([...doubled, ...Array(5).fill(10_000)]);
    expect(log.filter(({ level }) => level === 50)).toMatchObject([{ plugin: 'p0', used: [USE] }]);
    expect(await isSettled(gates, log)).toBe(true);
  });

  it('is asked once more when the host stops, and then not again', async () => {
    const delays = replaceSleep(waitForAbort);
    const settle = vi.fn(() => Promise.reject(new Error('away')));
    const { gates, log } = setUp({ admits: [holding({ settle }).admit] });
    const settling = (await gates.admit(request)).settle();
    await expect.poll(() => delays).toEqual([200]);
    await gates.close(0, 5_000);
    await settling;
    expect(settle).toHaveBeenCalledTimes(2);
    expect(log.filter(({ level }) => level === 50)).toMatchObject([{ plugin: 'p0', used: [] }]);
  });
});

/** Records the timers of this file's gates; returns those of a duration that were not cleared. */
function watchTimers() {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const set = vi.spyOn(globalThis, 'setTimeout');
  const cleared = vi.spyOn(globalThis, 'clearTimeout');
  onTestFinished(() => {
    vi.restoreAllMocks();
    vi.useRealTimers();
  });
  return (ms: number) => {
    const timers = set.mock.results.filter((_, i) => set.mock.calls[i]?.[1] === ms);
    expect(timers).not.toEqual([]);
    return timers.filter(({ value }) => !cleared.mock.calls.some(([timer]) => timer === value));
  };
}

describe('Gates.close', () => {
  it('gives attempts their time before it ends them', async () => {
    const listOpen = watchTimers();
    const delays = replaceSleep(waitForAbort);
    const settle = vi.fn(() => Promise.reject(new Error('away')));
    const { gates } = setUp({ admits: [holding({ settle }).admit] });
    void (await gates.admit(request)).settle();
    // Not `expect.poll`, which moves fake timers.
    while (delays.length === 0) await new Promise(setImmediate);
    expect(delays).toEqual([200]);
    const closing = gates.close(300, 5_003);
    await vi.advanceTimersByTimeAsync(299);
    expect(settle).toHaveBeenCalledTimes(1);
    await vi.advanceTimersByTimeAsync(1);
    await closing;
    expect(settle).toHaveBeenCalledTimes(2);
    expect(listOpen(5_003)).toEqual([]);
  });

  it('does not end attempts later if all turns were settled in time', async () => {
    const listOpen = watchTimers();
    const { gates } = setUp();
    await gates.close(60_003, 5_000);
    expect(listOpen(60_003)).toEqual([]);
  });

  it('waits for turns that end meanwhile, also those admitted after it began', async () => {
    const { gates, log } = setUp();
    const first = await gates.admit(request);
    const closed = vi.fn();
    const closing = gates.close(0, 5_000).then(closed);
    const second = await gates.admit(request);
    await first.settle();
    await new Promise<void>((resolve) => setImmediate(resolve));
    expect(closed).not.toHaveBeenCalled();
    await second.settle();
    await closing;
    expect(log).toEqual([]);
  });

  it('stops waiting after its time limit, and logs how many turns are not settled', async () => {
    const { gates, log } = setUp();
    await gates.admit(request);
    await gates.admit(request);
    await gates.close(0, 1);
    expect(log).toMatchObject([{ level: 50, turns: 2 }]);
  });
});
