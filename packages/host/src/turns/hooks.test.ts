import { getEventListeners } from 'node:events';
import { OracleError } from '@sibyl/protocol';
import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { Hooks, withSignal } from './hooks.js';

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
