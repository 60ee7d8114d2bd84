import { setTimeout as wait } from 'node:timers/promises';
import type { FaultKind } from '@sibyl/protocol';
import {
  createModelError,
  type Model,
  type ModelCall,
  ModelError,
  type ModelPart,
} from './model.js';

export interface RetryOptions {
  readonly attempts?: number;
  /** The first wait; each further one is twice as long, up to the last. */
  readonly firstWaitMs?: number;
  readonly lastWaitMs?: number;
  /** A provider that asks for a longer wait is not asked again. */
  readonly longestRetryAfterSeconds?: number;
  readonly onRetry?: (fault: ModelError) => void;
  readonly sleep?: (ms: number, signal: AbortSignal) => Promise<void>;
  readonly random?: () => number;
}

const defaults: Required<RetryOptions> = {
  attempts: 3,
  firstWaitMs: 500,
  lastWaitMs: 8000,
  longestRetryAfterSeconds: 20,
  onRetry: () => {},
  sleep: (ms, signal) => wait(ms, undefined, { signal }),
  random: Math.random,
};

/** Asks again after a passing fault, as long as nothing of an answer has come. */
export function withRetry(model: Model, options: RetryOptions = {}): Model {
  const settings = { ...defaults, ...options };
  return { ...model, stream: (call) => streamWithRetry(model, call, settings) };
}

async function* streamWithRetry(
  model: Model,
  call: ModelCall,
  settings: Required<RetryOptions>,
): AsyncGenerator<ModelPart> {
  for (let attempt = 1; ; attempt++) {
    let hasBegun = false;
    try {
      for await (const part of model.stream(call)) {
        hasBegun = true;
        yield part;
      }
      return;
    } catch (error) {
      const wait = hasBegun ? undefined : getRetryDelay(error, attempt, settings);
      if (wait === undefined) throw error;
      settings.onRetry(error as ModelError);
      await pause(wait, call.signal, settings);
    }
  }
}

const retriedKinds: ReadonlySet<FaultKind> = new Set(['rate_limit', 'server', 'network']);

function getRetryDelay(
  error: unknown,
  attempt: number,
  settings: Required<RetryOptions>,
): number | undefined {
  if (!(error instanceof ModelError) || !error.retryable || !retriedKinds.has(error.kind))
    return undefined;
  if (attempt >= settings.attempts) return undefined;
  const asked = error.retryAfterSeconds ?? 0;
  if (asked > settings.longestRetryAfterSeconds) return undefined;
  const grown = Math.min(settings.firstWaitMs * 2 ** (attempt - 1), settings.lastWaitMs);
  // Half of it is left to chance, so that many turns refused at once do not return at once.
  return Math.max(asked * 1000, grown * (0.5 + settings.random() / 2));
}

async function pause(
  ms: number,
  signal: AbortSignal,
  { sleep }: Required<RetryOptions>,
): Promise<void> {
  try {
    await sleep(ms, signal);
  } finally {
    signal.throwIfAborted();
  }
}

/** Rings when so much time has passed since it was set or last restarted. */
interface Alarm {
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
  return { ...model, stream: (call) => streamWithTimeouts(model, call, timeouts) };
}

async function* streamWithTimeouts(
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
      if (isWaiting) stop.abort(createModelError('timeout', `nothing for ${ms} ms`));
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
