import type { Model, ModelCall, ModelPart } from './model.js';
import { faultOfKind } from './provider-fault.js';

/** Rings when so much time has passed since it was set or last restarted. */
export interface Alarm {
  restart(): void;
  cancel(): void;
}
export type SetAlarm = (ms: number, ring: () => void) => Alarm;

export interface Timeouts {
  /** Longest silence before the first part. */
  readonly firstPartMs: number;
  /** Longest silence after it. */
  readonly stallMs: number;
  readonly setAlarm?: SetAlarm;
}

const setTimer: SetAlarm = (ms, ring) => {
  const timer = setTimeout(ring, ms);
  return { restart: () => timer.refresh(), cancel: () => clearTimeout(timer) };
};

/** Gives up on a model that falls silent; what it had said stays said. */
export function withTimeouts(model: Model, timeouts: Timeouts): Model {
  return { ...model, stream: (call) => watch(model, call, timeouts) };
}

async function* watch(
  model: Model,
  call: ModelCall,
  { firstPartMs, stallMs, setAlarm = setTimer }: Timeouts,
): AsyncGenerator<ModelPart> {
  call.signal.throwIfAborted();
  const stop = new AbortController();
  const abort = () => stop.abort(call.signal.reason);
  call.signal.addEventListener('abort', abort, { once: true });
  let isWaiting = true;
  const setFor = (ms: number) =>
    setAlarm(ms, () => {
      if (isWaiting) stop.abort(faultOfKind('timeout', `nothing for ${ms} ms`));
    });
  let alarm = setFor(firstPartMs);
  let hasBegun = false;
  const onActivity = () => {
    alarm.restart();
    call.onActivity?.();
  };
  try {
    for await (const part of model.stream({ ...call, signal: stop.signal, onActivity })) {
      if (!hasBegun) {
        hasBegun = true;
        alarm.cancel();
        alarm = setFor(stallMs);
      }
      // The time the consumer takes is not the model's.
      isWaiting = false;
      yield part;
      isWaiting = true;
      alarm.restart();
    }
  } finally {
    alarm.cancel();
    call.signal.removeEventListener('abort', abort);
  }
}
