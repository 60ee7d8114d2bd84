import { expect, it } from 'vitest';
import type { Model, ModelCall, ModelPart } from './model.js';
import { type SetAlarm, withTimeouts } from './with-timeouts.js';

const info = { id: 'x/y', label: 'y', provider: 'x', vision: false, tools: false };
const text: ModelPart = { type: 'text', text: 'a' };

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
