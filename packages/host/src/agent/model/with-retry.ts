import { setTimeout } from 'node:timers/promises';
import type { FaultKind } from '@sibyl/protocol';
import type { Model, ModelCall, ModelPart } from './model.js';
import { ModelFault } from './model-fault.js';

export interface RetryOptions {
  readonly attempts?: number;
  /** The first wait; each further one is twice as long, up to the last. */
  readonly firstWaitMs?: number;
  readonly lastWaitMs?: number;
  /** A provider that asks for a longer wait is not asked again. */
  readonly longestRetryAfterSeconds?: number;
  readonly onRetry?: (fault: ModelFault) => void;
  readonly sleep?: (ms: number, signal: AbortSignal) => Promise<void>;
  readonly random?: () => number;
}

const defaults: Required<RetryOptions> = {
  attempts: 3,
  firstWaitMs: 500,
  lastWaitMs: 8000,
  longestRetryAfterSeconds: 20,
  onRetry: () => {},
  sleep: (ms, signal) => setTimeout(ms, undefined, { signal }),
  random: Math.random,
};

/** Asks again after a passing fault, as long as nothing of an answer has come. */
export function withRetry(model: Model, options: RetryOptions = {}): Model {
  const settings = { ...defaults, ...options };
  return { ...model, stream: (call) => persist(model, call, settings) };
}

async function* persist(
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
      const wait = hasBegun ? undefined : waitAfter(error, attempt, settings);
      if (wait === undefined) throw error;
      settings.onRetry(error as ModelFault);
      await pause(wait, call.signal, settings);
    }
  }
}

const retried: ReadonlySet<FaultKind> = new Set(['rate_limit', 'server', 'network']);

function waitAfter(
  error: unknown,
  attempt: number,
  settings: Required<RetryOptions>,
): number | undefined {
  if (!(error instanceof ModelFault) || !error.retryable || !retried.has(error.kind))
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
