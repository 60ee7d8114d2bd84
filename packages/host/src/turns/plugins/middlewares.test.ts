import { OracleError } from '@sibyl/protocol';
import { expect, it } from 'vitest';
import { callThrough, type Wrapping } from './middlewares.js';

type TestWrapping = Wrapping<{ readonly n: number }, unknown>;

/** Makes a call through a middleware; returns how often the call was made and the errors of the middleware. */
async function through(wrap: TestWrapping['wrap'], more: Partial<TestWrapping> = {}) {
  const faults: unknown[] = [];
  const inputs: unknown[] = [];
  const result = await callThrough({
    input: { n: 1 },
    wrap,
    next: async (input) => {
      inputs.push(input);
      return 'result';
    },
    timeoutMs: 1000,
    signal: new AbortController().signal,
    onFailure: { skip: (fault) => faults.push(fault) },
    ...more,
  }).catch((thrown: unknown) => ({ thrown }));
  return { result, inputs, faults };
}

const never = () => new Promise<never>(() => undefined);

it('does not count the time of the call as the middleware’s', async () => {
  let ticks = 0;
  const next = async () => {
    // Longer than the middleware may take.
    while (ticks++ < 20) await new Promise((resolve) => setTimeout(resolve, 1));
    return 'late';
  };
  const { result, faults } = await through((call) => call({ n: 1 }), { next, timeoutMs: 5 });
  expect([result, faults]).toEqual(['late', []]);
});

/** As `through`, with a middleware whose failure fails the call. */
const throughGuard = (wrap: TestWrapping['wrap'], more: Partial<TestWrapping> = {}) =>
  through(wrap, {
    onFailure: { fail: (_, hasRun) => new Error(hasRun ? 'withheld' : 'blocked') },
    ...more,
  });

it('callThrough does not make the call for a middleware that fails, now or later', async () => {
  const calls: Promise<unknown>[] = [];
  const wakeUp = Promise.withResolvers<void>();
  const { result, inputs } = await throughGuard(
    async (call) => {
      await wakeUp.promise;
      calls.push(call({ n: 2 }));
      return never();
    },
    { timeoutMs: 1 },
  );
  wakeUp.resolve();
  await expect.poll(() => calls.length).toBe(1);
  await expect(calls[0]).rejects.toThrow('its call is over');
  expect([result, inputs]).toEqual([{ thrown: new Error('blocked') }, []]);
});

it('callThrough waits for a call in progress before it reports a failed middleware', async () => {
  const tool = Promise.withResolvers<string>();
  let isOver = false;
  const ended = throughGuard(
    (call) => {
      void call({ n: 1 });
      return Promise.reject(new Error('broken'));
    },
    { next: () => tool.promise.finally(() => (isOver = true)) },
  );
  tool.resolve('result');
  expect((await ended).result).toEqual({ thrown: new Error('withheld') });
  expect(isOver).toBe(true);
});

it.each([new Error('broken'), new OracleError('forbidden')])(
  'callThrough waits for all calls made in parallel before it reports %s',
  async (fault) => {
    const tools = [Promise.withResolvers<string>(), Promise.withResolvers<string>()];
    const inProgress = [...tools];
    let isReported = false;
    const ended = throughGuard(
      (call) => {
        void call({ n: 1 });
        void call({ n: 2 });
        return Promise.reject(fault);
      },
      { next: async () => inProgress.shift()?.promise },
    ).then(() => (isReported = true));
    tools[1]?.resolve('second');
    // Longer than everything that can happen while the first call is in progress.
    await new Promise((resolve) => setImmediate(resolve));
    expect(isReported).toBe(false);
    tools[0]?.resolve('first');
    expect(await ended).toBe(true);
  },
);

it('callThrough reports what the call threw, whichever of several a middleware passes on', async () => {
  let made = 0;
  const { result } = await throughGuard(
    (call) =>
      call({ n: 1 }).catch(async (first) => {
        await call({ n: 2 }).catch(() => undefined);
        throw first;
      }),
    { next: () => Promise.reject(new Error(`call ${++made}`)) },
  );
  expect(result).toEqual({ thrown: new Error('call 1') });
});

it('WrappedCall makes the call once, even if a middleware that timed out calls next again', async () => {
  const calls: Promise<unknown>[] = [];
  const wakeUp = Promise.withResolvers<void>();
  const wrap: TestWrapping['wrap'] = async (call) => {
    await wakeUp.promise;
    calls.push(call({ n: 2 }));
    return never();
  };
  const { result, inputs, faults } = await through(wrap, { timeoutMs: 1 });
  wakeUp.resolve();
  await expect.poll(() => calls.length).toBe(1);
  await expect(calls[0]).rejects.toThrow('its call is over');
  expect([result, inputs, faults.length]).toEqual(['result', [{ n: 1 }], 1]);
});

it('makes no call after the turn is aborted', async () => {
  const turn = new AbortController();
  const reason = new Error('aborted');
  const wrap: TestWrapping['wrap'] = (call) => {
    turn.abort(reason);
    return call({ n: 1 });
  };
  const { result, inputs } = await through(wrap, { signal: turn.signal });
  expect([result, inputs]).toEqual([{ thrown: reason }, []]);
});

it('prefers the fault of the call to one the middleware makes of it', async () => {
  const fault = new Error('the tool failed');
  const wrap: TestWrapping['wrap'] = (call) =>
    call({ n: 1 }).catch(() => {
      throw new Error('another');
    });
  const { result, faults } = await through(wrap, { next: () => Promise.reject(fault) });
  expect(result).toEqual({ thrown: fault });
  expect(faults).toHaveLength(1);
});

it('passes a refusal on, before the call and after it', async () => {
  const refusal = new OracleError('forbidden');
  const before = await through(() => Promise.reject(refusal));
  expect([before.result, before.inputs]).toEqual([{ thrown: refusal }, []]);
  const after = await through(async (call) => {
    await call({ n: 1 });
    throw refusal;
  });
  expect(after.result).toEqual({ thrown: refusal });
  expect(after.faults).toEqual([]);
});

it('survives a call that fails after the middleware has stopped looking', async () => {
  const wrap: TestWrapping['wrap'] = async (call) => {
    void call({ n: 1 });
    return 'mine';
  };
  const { result } = await through(wrap, { next: () => Promise.reject(new Error('late')) });
  expect(result).toBe('mine');
});
