import type { Model, ModelCall, ModelPart } from './model.js';
import type { ModelFault } from './model-fault.js';
import { faultOfKind } from './provider-fault.js';

/** Rings once after a time; what it returns cancels it. */
export type SetAlarm = (ms: number, ring: () => void) => () => void;

export interface Timeouts {
  /** Longest silence before the first part. */
  readonly firstPartMs: number;
  /** Longest silence after it. */
  readonly stallMs: number;
  readonly setAlarm?: SetAlarm;
}

const setTimer: SetAlarm = (ms, ring) => {
  const timer = setTimeout(ring, ms);
  return () => clearTimeout(timer);
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
  let limit = firstPartMs;
  let cancel = () => {};
  const restart = () => {
    cancel();
    cancel = setAlarm(limit, () => stop.abort(silence(limit)));
  };
  const onActivity = () => {
    restart();
    call.onActivity?.();
  };
  try {
    restart();
    for await (const part of model.stream({ ...call, signal: stop.signal, onActivity })) {
      // The time the consumer takes is not the model's.
      cancel();
      yield part;
      limit = stallMs;
      restart();
    }
  } finally {
    cancel();
    call.signal.removeEventListener('abort', abort);
  }
}

function silence(ms: number): ModelFault {
  return faultOfKind('timeout', `nothing for ${ms} ms`);
}
