import { setTimeout as wait } from 'node:timers/promises';
import type { ErrorKind } from '@sibyl/protocol';
import {
  createModelError,
  type Model,
  type ModelCall,
  ModelError,
  type ModelPart,
} from './model.js';
import type { ModelFacts } from './model-facts.js';

export interface RetryOptions {
  readonly attempts?: number;
  /** The first delay; it doubles up to the last. */
  readonly firstWaitMs?: number;
  readonly lastWaitMs?: number;
  /** If a provider asks for a longer delay, the call is not retried. */
  readonly longestRetryAfterSeconds?: number;
  /** Called for every error of the model, with whether the call is retried. */
  readonly onFailure?: (error: ModelError, isRetried: boolean) => void;
  readonly sleep?: (ms: number, signal: AbortSignal) => Promise<void>;
  readonly random?: () => number;
}

const defaults: Required<RetryOptions> = {
  attempts: 3,
  firstWaitMs: 500,
  lastWaitMs: 8000,
  longestRetryAfterSeconds: 20,
  onFailure: () => {},
  sleep: (ms, signal) => wait(ms, undefined, { signal }),
  random: Math.random,
};

/**
 * Retries after a transient error, unless a part of the answer has arrived. Remembers what the model refuses, for all
 * later calls.
 */
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
        yield addCost(part, model.facts);
      }
      return;
    } catch (error) {
      learn(model.facts, error);
      const wait = hasBegun ? undefined : getRetryDelay(error, attempt, settings);
      report(error, settings, wait);
      if (wait === undefined) throw error;
      await pause(wait, call.signal, settings);
    }
  }
}

function report(error: unknown, { onFailure }: Required<RetryOptions>, wait: number | undefined) {
  if (error instanceof ModelError) onFailure(error, wait !== undefined);
}

function addCost(part: ModelPart, facts: ModelFacts): ModelPart {
  const cost = part.type === 'finish' ? facts.computeCost(part.usage) : undefined;
  return part.type !== 'finish' || cost === undefined
    ? part
    : { ...part, usage: { ...part.usage, cost } };
}

function learn(facts: ModelFacts, error: unknown): void {
  const rejection = error instanceof ModelError ? error.rejection : undefined;
  if (rejection?.of === 'context' && rejection.limit) facts.learnContextTokens(rejection.limit);
  if (rejection?.of === 'images' && rejection.isLasting) facts.refuse('vision');
  if (rejection?.of === 'tools' || rejection?.of === 'reasoning') facts.refuse(rejection.of);
  if (rejection?.of === 'schema') facts.refuse('structuredOutput');
}

const retriedKinds: ReadonlySet<ErrorKind> = new Set(['rate_limit', 'server', 'network']);

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
  // Random jitter, so that many turns that fail together do not retry together.
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

/** Fires when this much time has passed since it was set or restarted. */
interface Alarm {
  restart(): void;
  cancel(): void;
}
export type SetAlarm = (ms: number, ring: () => void) => Alarm;

export interface Timeouts {
  /** The longest time without activity before the first part. */
  readonly firstPartMs: number;
  /** The longest time without activity after it. */
  readonly stallMs: number;
  readonly setAlarm?: SetAlarm;
}

const setTimer: SetAlarm = (ms, ring) => {
  const timer = setTimeout(ring, ms);
  return { restart: () => timer.refresh(), cancel: () => clearTimeout(timer) };
};

/** Ends a call with a timeout error if the model stops sending; parts that arrived before are kept. */
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
      if (isWaiting) stop.abort(createModelError('timeout', `no data for ${ms} ms`));
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
      // Time that the consumer needs does not count.
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

/** How long a model that failed is tried last. */
const REST_MS = 60_000;

/**
 * Lets other models answer while this one is down, and says so. An answer that has begun is not repeated. All models
 * with the same fallbacks share what is known about them.
 */
export function withFallbacks(model: Model, fallbacks: readonly Model[]): Model {
  const others = fallbacks.filter(({ id }) => id !== model.id);
  if (others.length === 0) return model;
  const restUntil = new Map<string, number>();
  const stream = (call: ModelCall) => streamFirst([model, ...others], call, restUntil);
  return { ...model, stream };
}

async function* streamFirst(
  candidates: readonly Model[],
  call: ModelCall,
  restUntil: Map<string, number>,
): AsyncGenerator<ModelPart> {
  const ready = candidates.filter(({ id }) => (restUntil.get(id) ?? 0) <= performance.now());
  const left = ready.length > 0 ? ready : candidates;
  for (const [i, model] of left.entries()) {
    const attempt = new Attempt(candidates[0] as Model, model);
    try {
      yield* attempt.stream(call);
      return;
    } catch (error) {
      if (attempt.hasBegun || i === left.length - 1 || !isOutage(error)) throw error;
      restUntil.set(model.id, performance.now() + REST_MS);
    }
  }
}

/** One model's attempt to answer for the one that was asked. */
class Attempt {
  hasBegun = false;
  private readonly wanted: Model;
  private readonly model: Model;

  constructor(wanted: Model, model: Model) {
    this.wanted = wanted;
    this.model = model;
  }

  async *stream(call: ModelCall): AsyncGenerator<ModelPart> {
    const { wanted, model } = this;
    const isOther = model !== wanted;
    for await (const part of model.stream(call)) {
      if (isOther && !this.hasBegun) yield describeFallback(wanted, model);
      this.hasBegun = true;
      yield isOther && part.type === 'finish' ? { ...part, model: model.id } : part;
    }
  }
}

/** Whether another provider may answer: the request itself is fine. */
function isOutage(error: unknown): boolean {
  return error instanceof ModelError && error.kind !== 'unknown';
}

function describeFallback(wanted: Model, model: Model): ModelPart {
  const message = `${wanted.label} is not available at the moment; ${model.label} answers instead.`;
  return { type: 'warning', code: 'model_fallback', message, answeredBy: model };
}
