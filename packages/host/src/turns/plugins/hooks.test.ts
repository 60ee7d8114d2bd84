import { getEventListeners } from 'node:events';
import { OracleError } from '@sibyl/protocol';
import { pino } from 'pino';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { Metrics } from '../../observability/metrics.js';
import { Hooks, toError, withSignal } from './hooks.js';

function setUp(timeoutMs = 60_000) {
  const log: Record<string, unknown>[] = [];
  const logger = pino({}, { write: (line) => void log.push(JSON.parse(line)) });
  const turn = new AbortController();
  const call = { plugin: 'p', hook: 'getTools', signal: turn.signal };
  return { hooks: new Hooks(logger, timeoutMs), call, turn, log };
}
const never = () => new Promise<never>(() => undefined);

describe.each(['callOptional', 'callGuard'] as const)('%s', (how) => {
  it('gives what the hook gives, at once or later', async () => {
    const { hooks, call, log } = setUp();
    expect(await hooks[how](call, () => 1)).toEqual({ ok: 1 });
    expect(await hooks[how](call, async () => undefined)).toEqual({ ok: undefined });
    expect(log).toEqual([]);
  });

  it('gives the fault of a hook that fails, and logs it', async () => {
    const { hooks, call, log } = setUp();
    const fault = new Error('broken');
    const thrown = () => {
      throw fault;
    };
    expect(await hooks[how](call, thrown)).toEqual({ fault });
    expect(await hooks[how](call, () => Promise.reject(fault))).toEqual({ fault });
    expect(log).toMatchObject([
      { plugin: 'p', hook: 'getTools', level: 40, err: { message: 'broken' } },
      { plugin: 'p' },
    ]);
  });

  it('Hooks.callOptional times out on a hook that hangs, and aborts its signal', async () => {
    const { hooks, call } = setUp(1);
    let signal: AbortSignal | undefined;
    const answer = await hooks[how](call, (limit) => {
      signal = limit.signal;
      return never();
    });
    expect(answer).toMatchObject({ fault: { message: 'did not answer within 0.001 s' } });
    expect(signal?.aborted).toBe(true);
  });

  it('gives a signal that ends with the turn, also if the hook has returned', async () => {
    const { hooks, call, turn } = setUp();
    const kept: AbortSignal[] = [];
    await hooks[how](call, (limit) => kept.push(withSignal({}, limit).signal));
    await hooks[how](call, async (limit) => kept.push(limit.signal));
    expect(kept.map(({ aborted }) => aborted)).toEqual([false, false]);
    turn.abort('over');
    expect(kept.map(({ reason }) => reason)).toEqual(['over', 'over']);
  });

  it('leaves no listener for a hook that does not use its signal', async () => {
    const { hooks, call, turn } = setUp();
    await hooks[how](call, () => 1);
    await hooks[how](call, async () => 1);
    expect(getEventListeners(turn.signal, 'abort')).toEqual([]);
  });

  it('ends with its turn', async () => {
    const { hooks, call, turn, log } = setUp();
    const reason = new Error('aborted');
    const asked = hooks[how](call, never);
    turn.abort(reason);
    await expect(asked).rejects.toBe(reason);
    expect(log).toEqual([]);
  });
});

it('takes what is thrown on purpose for a refusal only where one is asked for', async () => {
  const { hooks, call, log } = setUp();
  const refusal = new OracleError('forbidden');
  const refuse = () => Promise.reject(refusal);
  await expect(hooks.callGuard(call, refuse)).rejects.toBe(refusal);
  expect(log).toEqual([]);
  expect(await hooks.callOptional(call, refuse)).toEqual({ fault: refusal });
});

describe('callRequired', () => {
  it('gives what the hook gives', async () => {
    const { hooks, call } = setUp();
    expect(await hooks.callRequired(call, async () => 1)).toBe(1);
  });

  it('passes a refusal on as it is', async () => {
    const { hooks, call, log } = setUp();
    const refusal = new OracleError('forbidden');
    await expect(hooks.callRequired(call, () => Promise.reject(refusal))).rejects.toBe(refusal);
    expect(log).toEqual([]);
  });

  it.each<[string, () => Promise<never>]>([
    ['fails', () => Promise.reject(new Error('broken'))],
    ['hangs', never],
  ])('refuses for a hook that %s, and logs why', async (_, work) => {
    const { hooks, call, log } = setUp(1);
    await expect(hooks.callRequired(call, work)).rejects.toMatchObject({
      code: 'gate_unavailable',
    });
    expect(log).toMatchObject([{ plugin: 'p', hook: 'getTools', level: 50, err: {} }]);
  });

  it('ends with its turn', async () => {
    const { hooks, call, turn } = setUp();
    const reason = new Error('aborted');
    const asked = hooks.callRequired(call, never);
    turn.abort(reason);
    await expect(asked).rejects.toBe(reason);
  });
});

describe('a hook that fails, for its caller', () => {
  const fault = new Error('broken');

  it('refuses the turn for a few seconds, with the reason as the cause only', async () => {
    const { hooks, call } = setUp();
    const refused = hooks.callRequired(call, () => Promise.reject(fault));
    const refusal = await refused.catch((error: OracleError) => error);
    expect(refusal).toMatchObject({ code: 'gate_unavailable', retryAfterSeconds: 5, cause: fault });
    expect(String(refusal)).not.toContain('broken');
  });

  it('refuses with the error of the caller if it has another one', async () => {
    const { hooks, call, log } = setUp();
    const own = new OracleError('plugin_failed');
    const create = vi.fn(() => own);
    const refused = hooks.callRequired(call, () => Promise.reject(fault), create);
    await expect(refused).rejects.toBe(own);
    expect(create.mock.calls).toEqual([[fault]]);
    expect(log).toEqual([]);
  });

  it('createPluginError names the plugin and what happened, and keeps the reason in the log', () => {
    const { hooks, call, log } = setUp();
    const error = hooks.createPluginError(call, fault, 'The call was not made');
    expect(error).toMatchObject({
      code: 'plugin_failed',
      message: 'The call was not made because the plugin p failed.',
      cause: fault,
      retryAfterSeconds: 5,
    });
    expect(log).toMatchObject([
      { plugin: 'p', hook: 'getTools', level: 50, err: { message: 'broken' } },
    ]);
  });
});

describe('a hook outside of a turn', () => {
  const call = { plugin: 'p', hook: 'onStart' };

  it('gives its result or its fault', async () => {
    const { hooks } = setUp();
    const fault = new Error('broken');
    const fail = () => Promise.reject(fault);
    expect(await hooks.callOptional(call, async () => 1)).toEqual({ ok: 1 });
    expect(await hooks.callOptional(call, fail)).toEqual({ fault });
    expect(await hooks.callGuard(call, fail)).toEqual({ fault });
    await expect(hooks.callRequired(call, fail)).rejects.toMatchObject({ cause: fault });
  });

  it('has a signal, which only its time limit aborts', async () => {
    const { hooks } = setUp(1);
    const signals: AbortSignal[] = [];
    const answer = await hooks.callOptional(call, (limit) => {
      signals.push(limit.signal, limit.signal);
      expect(limit.signal.aborted).toBe(false);
      return never();
    });
    const [signal, again] = signals;
    expect(again).toBe(signal);
    expect(answer).toEqual({ fault: signal?.reason });
  });
});

describe('the limits of a hook', () => {
  it('it is not called if its turn has ended', async () => {
    const { hooks, call, turn } = setUp();
    const reason = new Error('over');
    turn.abort(reason);
    const work = vi.fn();
    for (const how of ['callOptional', 'callGuard', 'callRequired'] as const)
      await expect(hooks[how](call, work)).rejects.toBe(reason);
    expect(work).not.toHaveBeenCalled();
  });

  it('it ends at once if it ends its turn itself', async () => {
    const { hooks, call, turn } = setUp();
    const reason = new Error('over');
    const asked = hooks.callOptional(call, () => {
      turn.abort(reason);
      return never();
    });
    await expect(asked).rejects.toBe(reason);
  });

  it('a signal that it uses first when its turn has ended is aborted', async () => {
    const { hooks, call, turn } = setUp();
    const contexts: { readonly signal: AbortSignal }[] = [];
    await hooks.callOptional(call, (limit) => void contexts.push(withSignal({}, limit)));
    turn.abort('over');
    expect(contexts[0]?.signal).toMatchObject({ aborted: true, reason: 'over' });
  });

  it('a signal that it uses first after its time limit is aborted', async () => {
    const { hooks, call } = setUp(1);
    const contexts: { readonly name: string; readonly signal: AbortSignal }[] = [];
    await hooks.callOptional(call, (limit) => {
      contexts.push(withSignal({ name: 'context' }, limit));
      return never();
    });
    const [context] = contexts;
    expect(context?.name).toBe('context');
    expect(context?.signal.reason).toMatchObject({ message: 'did not answer within 0.001 s' });
  });

  it('its timer and its listener end with it, also if it fails', async () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const { hooks, call, turn } = setUp();
    const counts = () => [vi.getTimerCount(), getEventListeners(turn.signal, 'abort').length];
    for (const settle of ['resolve', 'reject'] as const) {
      const answer = Promise.withResolvers<void>();
      const asked = hooks.callOptional(call, () => answer.promise);
      await expect.poll(() => counts()).toEqual([1, 1]);
      answer[settle]();
      await asked;
      expect(counts()).toEqual([0, 0]);
    }
  });

  it('it has all of its time', async () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const { hooks, call } = setUp(3_000);
    const answered = vi.fn();
    const asked = hooks.callOptional(call, never).then(answered);
    await vi.advanceTimersByTimeAsync(2_999);
    expect(answered).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1);
    await asked;
    expect(answered.mock.calls).toMatchObject([
      [{ fault: { message: 'did not answer within 3 s' } }],
    ]);
  });
});

describe('the result of a hook', () => {
  it.each([undefined, null, 0, ''])('can be %j', async (value) => {
    const { hooks, call } = setUp();
    expect(await hooks.callOptional<unknown>(call, () => value)).toEqual({ ok: value });
  });

  it('can be a thenable of another library', async () => {
    const { hooks, call } = setUp();
    // biome-ignore lint/suspicious/noThenProperty: this is what is tested.
    const thenable = { then: (resolve: (value: number) => void) => resolve(7) };
    const work = () => thenable as Promise<number>;
    expect(await hooks.callOptional(call, work)).toEqual({ ok: 7 });
  });
});

describe('the time that a hook takes', () => {
  it('is measured in seconds by plugin and hook, also if it fails', async () => {
    const metrics = new Metrics();
    const observe = vi.spyOn(metrics, 'observe');
    const hooks = new Hooks(pino({ level: 'silent' }), 60_000, metrics);
    let now = 5_000;
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
    onTestFinished(() => clock.mockRestore());
    const call = { plugin: 'p', hook: 'getTools' };
    await hooks.callOptional(call, () => {
      now += 250;
    });
    await hooks.callOptional(call, () => {
      now += 1_500;
      throw new Error('broken');
    });
    expect(observe.mock.calls).toEqual([
      ['sibyl_hook_seconds', call, 0.25],
      ['sibyl_hook_seconds', call, 1.5],
    ]);
  });
});

describe('toError', () => {
  it('gives an error that can be read as it is', () => {
    const error = Object.assign(new TypeError('broken'), { code: 'E' });
    expect(toError(error)).toBe(error);
  });

  it.each([
    ['a text', 'broken', 'string'],
    ['nothing', undefined, 'undefined'],
    ['an object', { message: 'broken' }, 'object'],
  ])('replaces %s', (_, thrown, type) => {
    expect(toError(thrown)).toEqual(expect.any(Error));
    expect(toError(thrown).message).toContain(`(${type})`);
  });

  it.each(['message', 'stack', 'code'])('replaces an error whose %s cannot be read', (name) => {
    const error = Object.defineProperty(new Error('broken'), name, {
      enumerable: name === 'code',
      get: () => {
        throw new Error('trap');
      },
    });
    const replaced = toError(error);
    expect(replaced === error).toBe(false);
    expect(replaced.message).toContain('(object)');
  });

  it('a hook that throws such a value has an error as its fault', async () => {
    const { hooks, call } = setUp();
    const answer = await hooks.callOptional(call, () => Promise.reject('text'));
    expect(answer).toMatchObject({ fault: { message: expect.stringContaining('(string)') } });
  });
});
