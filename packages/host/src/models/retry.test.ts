import { expect, it } from 'vitest';
import {
  createModelError,
  type Model,
  type ModelCall,
  ModelError,
  type ModelPart,
} from './model.js';
import { type RetryOptions, type SetAlarm, withRetry, withTimeouts } from './retry.js';

const info = { id: 'x/y', label: 'y', provider: 'x', vision: false, tools: false };
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

it('waits longer each time, up to a limit, and less by chance', async () => {
  const down = createModelError('server', '');
  const { model } = failing([down], [down], [down], [down], [text, finish]);
  const options = { attempts: 5, firstWaitMs: 100, lastWaitMs: 300 };
  const { parts, waits } = await run(model, options);
  expect(parts).toEqual([text, finish]);
  expect(waits).toEqual([50, 100, 150, 150]);
});

it('gives up after so many attempts, with the last fault', async () => {
  const faults = ['server', 'network', 'rate_limit'] as const;
  const { model, calls } = failing(...faults.map((kind) => [createModelError(kind, '')]));
  const told: string[] = [];
  const { fault } = await run(model, { attempts: 3, onRetry: ({ kind }) => told.push(kind) });
  expect(fault).toMatchObject({ kind: 'rate_limit' });
  expect(calls()).toBe(3);
  expect(told).toEqual(['server', 'network']);
});

it('never asks again once something has come', async () => {
  const { model, calls } = failing([text, createModelError('network', '')]);
  const { parts, fault } = await run(model, {});
  expect(parts).toEqual([text]);
  expect(fault).toBeInstanceOf(ModelError);
  expect(calls()).toBe(1);
});

it.each(['auth', 'billing', 'timeout'] as const)('does not ask again after %s', async (kind) => {
  const { model, calls } = failing([createModelError(kind, '')]);
  await run(model, {});
  expect(calls()).toBe(1);
});

it('passes on what is no fault of a model', async () => {
  const bug = new TypeError('oops');
  expect((await run(failing([bug]).model, {})).fault).toBe(bug);
});

it('waits as long as the provider asks, within reason', async () => {
  const soon = failing([createModelError('rate_limit', '', 5)], [finish]);
  expect((await run(soon.model, {})).waits).toEqual([5000]);
  const late = failing([createModelError('rate_limit', '', 60)], [finish]);
  expect((await run(late.model, {})).fault).toMatchObject({ retryAfterSeconds: 60 });
});

it('ends at once, with the reason, when aborted while it waits', async () => {
  const { model, calls } = failing([createModelError('server', '')], [finish]);
  const stop = new AbortController();
  const reason = new Error('enough');
  const options = { firstWaitMs: 60_000, lastWaitMs: 60_000, onRetry: () => stop.abort(reason) };
  const call = { system: '', messages: [], tools: [], signal: stop.signal };
  const running = withRetry(model, options).stream(call)[Symbol.asyncIterator]().next();
  await expect(running).rejects.toBe(reason);
  expect(calls()).toBe(1);
});

/** Alarms that ring only when told to. */
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

it('gives up on a model that never begins', async () => {
  const { setAlarm, running } = alarms();
  const model = withTimeouts(silentAfter([]), { firstPartMs: 60, stallMs: 30, setAlarm });
  const next = model.stream(callWith())[Symbol.asyncIterator]().next();
  expect(running()).toMatchObject([{ ms: 60 }]);
  running()[0]?.ring();
  await expect(next).rejects.toMatchObject({ kind: 'timeout', retryable: true });
  expect(running()).toEqual([]);
});

it('gives up on a model that stalls; what had come stays', async () => {
  const { setAlarm, running } = alarms();
  const model = withTimeouts(silentAfter([text, text]), { firstPartMs: 60, stallMs: 30, setAlarm });
  const stream = model.stream(callWith())[Symbol.asyncIterator]();
  expect((await stream.next()).value).toEqual(text);
  // The consumer takes its time, which nobody holds against the model.
  running()[0]?.ring();
  expect((await stream.next()).value).toEqual(text);
  const next = stream.next();
  expect(running()).toMatchObject([{ ms: 30 }]);
  running()[0]?.ring();
  await expect(next).rejects.toMatchObject({ kind: 'timeout' });
});

it('takes hidden thinking for a sign of life', async () => {
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

it('passes an abort on, with its reason', async () => {
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
