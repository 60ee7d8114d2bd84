import { expect, it } from 'vitest';
import { ScriptedModel, type ScriptedStep, say } from '../../test/support/agent/scripted-model.js';
import { generateText } from '../agent/model-call.js';
import {
  createModelError,
  type Model,
  type ModelCall,
  ModelError,
  type ModelPart,
  type ModelUse,
} from './model.js';
import { ModelFacts } from './model-facts.js';
import {
  type RetryOptions,
  type SetAlarm,
  withFallbacks,
  withRetry,
  withTimeouts,
} from './retry.js';

const info = { id: 'x/y', label: 'y', provider: 'x', facts: new ModelFacts() };
const finish: ModelPart = {
  type: 'finish',
  reason: 'stop',
  usage: { input: 1, output: 1, cached: 0 },
};
const text: ModelPart = { type: 'text', text: 'a' };

/** A model that streams one of these lists a call, throwing the faults in it. */
function failing(...streams: (ModelPart | Error)[][]): { model: Model; calls: () => number } {
  let calls = 0;
  const model: Model = {
    ...info,
    async *stream() {
      for (const part of streams[calls++] ?? []) {
        if (part instanceof Error) throw part;
        yield part;
      }
    },
  };
  return { model, calls: () => calls };
}

async function run(model: Model, options: RetryOptions, call: Partial<ModelCall> = {}) {
  const waits: number[] = [];
  const sleep = async (ms: number) => {
    waits.push(ms);
  };
  const parts: ModelPart[] = [];
  const signal = new AbortController().signal;
  const whole = { system: '', messages: [], tools: [], signal, ...call };
  const running = async () => {
    for await (const part of withRetry(model, { sleep, random: () => 0, ...options }).stream(whole))
      parts.push(part);
  };
  const fault = await running().catch((error: unknown) => error);
  return { parts, fault, waits };
}

it('withRetry doubles the delay up to a limit, with jitter', async () => {
  const down = createModelError('server', '');
  const { model } = failing([down], [down], [down], [down], [text, finish]);
  const options = { attempts: 5, firstWaitMs: 100, lastWaitMs: 300 };
  const { parts, waits } = await run(model, options);
  expect(parts).toEqual([text, finish]);
  expect(waits).toEqual([50, 100, 150, 150]);
});

it('withRetry throws the last error after the last attempt', async () => {
  const faults = ['server', 'network', 'rate_limit'] as const;
  const { model, calls } = failing(...faults.map((kind) => [createModelError(kind, '')]));
  const retried: string[] = [];
  const { fault } = await run(model, {
    attempts: 3,
    onFailure: ({ kind }, isRetried) => isRetried && retried.push(kind),
  });
  expect(fault).toMatchObject({ kind: 'rate_limit' });
  expect(calls()).toBe(3);
  expect(retried).toEqual(['server', 'network']);
});

it('withRetry never retries after a part has arrived', async () => {
  const { model, calls } = failing([text, createModelError('network', '')]);
  const { parts, fault } = await run(model, {});
  expect(parts).toEqual([text]);
  expect(fault).toBeInstanceOf(ModelError);
  expect(calls()).toBe(1);
});

it.each(['auth', 'billing', 'timeout'] as const)(
  'withRetry does not retry after %s',
  async (kind) => {
    const { model, calls } = failing([createModelError(kind, '')]);
    await run(model, {});
    expect(calls()).toBe(1);
  },
);

it('withRetry rethrows errors that are not a ModelError', async () => {
  const bug = new TypeError('oops');
  expect((await run(failing([bug]).model, {})).fault).toBe(bug);
});

it('withRetry waits as long as the provider asks, within a limit', async () => {
  const soon = failing([createModelError('rate_limit', '', { retryAfterSeconds: 5 })], [finish]);
  expect((await run(soon.model, {})).waits).toEqual([5000]);
  const late = failing([createModelError('rate_limit', '', { retryAfterSeconds: 60 })], [finish]);
  expect((await run(late.model, {})).fault).toMatchObject({ retryAfterSeconds: 60 });
});

it('withRetry ends with the reason when aborted during a delay', async () => {
  const { model, calls } = failing([createModelError('server', '')], [finish]);
  const stop = new AbortController();
  const reason = new Error('enough');
  const options = { firstWaitMs: 60_000, lastWaitMs: 60_000, onFailure: () => stop.abort(reason) };
  const call = { system: '', messages: [], tools: [], signal: stop.signal };
  const running = withRetry(model, options).stream(call)[Symbol.asyncIterator]().next();
  await expect(running).rejects.toBe(reason);
  expect(calls()).toBe(1);
});

/** Alarms that ring only when the test says so. */
function alarms() {
  const set: { ms: number; ring: () => void; isOn: boolean; restarts: number }[] = [];
  const setAlarm: SetAlarm = (ms, ring) => {
    const alarm = { ms, ring, isOn: true, restarts: 0 };
    set.push(alarm);
    return {
      restart: () => {
        alarm.restarts++;
      },
      cancel: () => {
        alarm.isOn = false;
      },
    };
  };
  return { setAlarm, running: () => set.filter(({ isOn }) => isOn) };
}

/** Streams the parts, then says nothing until it is aborted. */
function silentAfter(parts: readonly ModelPart[], begin?: (call: ModelCall) => void): Model {
  return {
    ...info,
    async *stream(call) {
      begin?.(call);
      yield* parts;
      call.signal.throwIfAborted();
      await new Promise((_, reject) => {
        call.signal.addEventListener('abort', () => reject(call.signal.reason));
      });
    },
  };
}

function callWith(signal = new AbortController().signal): ModelCall {
  return { system: '', messages: [], tools: [], signal };
}

it('withTimeouts ends the call of a model that never starts', async () => {
  const { setAlarm, running } = alarms();
  const model = withTimeouts(silentAfter([]), { firstPartMs: 60, stallMs: 30, setAlarm });
  const next = model.stream(callWith())[Symbol.asyncIterator]().next();
  expect(running()).toMatchObject([{ ms: 60 }]);
  running()[0]?.ring();
  await expect(next).rejects.toMatchObject({ kind: 'timeout', retryable: true });
  expect(running()).toEqual([]);
});

it('withTimeouts ends the call of a model that stalls and keeps received parts', async () => {
  const { setAlarm, running } = alarms();
  const model = withTimeouts(silentAfter([text, text]), { firstPartMs: 60, stallMs: 30, setAlarm });
  const stream = model.stream(callWith())[Symbol.asyncIterator]();
  expect((await stream.next()).value).toEqual(text);
  // The time of the consumer does not count.
  running()[0]?.ring();
  expect((await stream.next()).value).toEqual(text);
  const next = stream.next();
  expect(running()).toMatchObject([{ ms: 30 }]);
  running()[0]?.ring();
  await expect(next).rejects.toMatchObject({ kind: 'timeout' });
});

it('withTimeouts counts hidden reasoning as activity', async () => {
  const { setAlarm, running } = alarms();
  let think = () => {};
  const begin = (call: ModelCall) => {
    think = () => call.onActivity?.();
  };
  const model = withTimeouts(silentAfter([], begin), { firstPartMs: 60, stallMs: 30, setAlarm });
  const next = model.stream(callWith())[Symbol.asyncIterator]().next();
  think();
  expect(running()).toMatchObject([{ ms: 60, restarts: 1 }]);
  running()[0]?.ring();
  await expect(next).rejects.toMatchObject({ kind: 'timeout' });
});

it('withTimeouts passes on an abort with its reason', async () => {
  const { setAlarm, running } = alarms();
  const stop = new AbortController();
  const model = withTimeouts(silentAfter([text]), { firstPartMs: 60, stallMs: 30, setAlarm });
  const stream = model.stream(callWith(stop.signal))[Symbol.asyncIterator]();
  await stream.next();
  const next = stream.next();
  const reason = new Error('enough');
  stop.abort(reason);
  await expect(next).rejects.toBe(reason);
  expect(running()).toEqual([]);
});

class NamedModel extends ScriptedModel {
  override readonly id: string;

  constructor(id: string, ...script: readonly ScriptedStep[]) {
    super(...script);
    this.id = id;
  }
}

const down = () => {
  throw createModelError('network', 'refused');
};
const invalid = () => {
  throw new ModelError('no', { kind: 'unknown', retryable: false });
};

async function read(model: Model) {
  const parts: ModelPart[] = [];
  const { signal } = new AbortController();
  try {
    for await (const part of model.stream({ system: '', messages: [], tools: [], signal }))
      parts.push(part);
    return { parts, thrown: undefined };
  } catch (thrown) {
    return { parts, thrown };
  }
}

it('withFallbacks answers with the next model while the first is down, says so, and counts it', async () => {
  const first = new NamedModel('a/first', down, down, say('I am back.'));
  const second = new NamedModel('b/second', say('Hello.'), say('Again.'));
  const model = withFallbacks(first, [second]);
  expect(model.id).toBe('a/first');
  const { parts, thrown } = await read(model);
  expect(thrown).toBeUndefined();
  expect(parts[0]).toMatchObject({ type: 'warning', code: 'model_fallback' });
  expect(parts[1]).toEqual({ type: 'text', text: 'Hello.' });
  expect(parts.at(-1)).toMatchObject({ type: 'finish', model: 'b/second' });
  // The next call does not wait for it again.
  expect((await read(model)).parts[1]).toEqual({ type: 'text', text: 'Again.' });
  expect(first.calls).toHaveLength(1);
});

it('withFallbacks tries the model that failed last if all others fail too', async () => {
  const first = new NamedModel('a/first', down, say('I am back.'));
  const second = new NamedModel('b/second', down);
  const model = withFallbacks(first, [second]);
  expect((await read(model)).thrown).toMatchObject({ kind: 'network' });
});

it('withFallbacks repeats neither an answer that has begun nor a request that is refused', async () => {
  const begun = new NamedModel('a/first', async function* () {
    yield { type: 'text', text: 'Half' };
    down();
  });
  const refused = new NamedModel('a/other', invalid);
  const second = new NamedModel('b/second', say('Hello.'));
  expect((await read(withFallbacks(begun, [second]))).thrown).toMatchObject({ kind: 'network' });
  expect((await read(withFallbacks(refused, [second]))).thrown).toMatchObject({ kind: 'unknown' });
  expect(second.calls).toEqual([]);
});

it('withFallbacks counts an answer that was aborted, or broke off, for the model that wrote it', async () => {
  const begun = async function* (): AsyncGenerator<ModelPart> {
    yield { type: 'text', text: 'A long answer that' };
    down();
  };
  const facts = new ModelFacts({ settings: { prices: { input: 10, output: 20 } } });
  const second = Object.assign(new NamedModel('b/second', begun), { facts });
  const model = withFallbacks(new NamedModel('a/first', down), [second]);
  const uses: ModelUse[] = [];
  const meter = { check: async () => {}, add: (use: ModelUse) => void uses.push(use) };
  const { signal } = new AbortController();
  const question = { model, system: '', prompt: 'Write a story', meter, signal };
  await expect(generateText(question)).rejects.toMatchObject({ kind: 'network' });
  expect(uses).toEqual([expect.objectContaining({ model: 'b/second', cost: expect.any(Number) })]);
  expect(uses[0]?.cost).toBeGreaterThan(0);
});

it('withFallbacks does not fall back to the model itself', () => {
  const first = new NamedModel('a/first');
  expect(withFallbacks(first, [first])).toBe(first);
});
