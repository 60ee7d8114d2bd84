import type { ErrorKind, ReadinessCheck } from '@sibyl/protocol';
import type { Logger } from 'pino';
import type { Metrics } from '../observability/metrics.js';
import { type ActiveSpan, startSpan } from '../observability/spans.js';
import { toModelCause } from './failure-cause.js';
import {
  type Model,
  type ModelCall,
  ModelError,
  type ModelFinish,
  type ModelPart,
} from './model.js';
import type { Models, ModelsOptions } from './models.js';

interface ObservedModelsDeps {
  readonly metrics: Metrics;
  /** Called with the error of each call, or undefined if it succeeded. */
  readonly onEnd: (model: Model, error: ModelError | undefined) => void;
}

/** Returns the same models; their calls are measured and become spans. */
export function observeModels(models: Models, deps: ObservedModelsDeps): Models {
  const observed = new Map<Model, Model>();
  const observe = (model: Model): Model => {
    const known = observed.get(model) ?? {
      ...model,
      stream: (call: ModelCall) => observeCall(model, call, deps),
    };
    observed.set(model, known);
    return known;
  };
  return {
    ...models,
    get: (role) => observe(models.get(role)),
    find: (id) => {
      const model = models.find(id);
      return model && observe(model);
    },
  };
}

/** One generator for everything: each one costs time for every token. */
async function* observeCall(
  model: Model,
  call: ModelCall,
  deps: ObservedModelsDeps,
): AsyncGenerator<ModelPart> {
  const observed = new ObservedCall(model, call, deps);
  try {
    for await (const part of model.stream(observed.call)) {
      if (part.type === 'finish') observed.finish = part;
      else if (observed.text !== undefined && part.type === 'text') observed.text += part.text;
      yield part;
    }
  } catch (error) {
    observed.error = error;
    throw error;
  } finally {
    observed.end();
  }
}

/** One call of a model, and what is known about it. */
class ObservedCall {
  readonly call: ModelCall;
  finish: ModelFinish | undefined;
  error: unknown;
  /** What the model wrote, if it is to be exported. */
  text: string | undefined;
  private readonly startedAt = performance.now();
  private readonly span: ActiveSpan | undefined;

  constructor(
    private readonly model: Model,
    call: ModelCall,
    private readonly deps: ObservedModelsDeps,
  ) {
    const { id } = model;
    this.span = startSpan({
      kind: 'model',
      name: id,
      facts: { operation: 'chat', model: id },
    });
    const traceparent = this.span?.traceparent;
    this.call = traceparent ? { ...call, headers: { traceparent } } : call;
    if (this.span?.capturesContent) this.text = '';
  }

  end(): void {
    const { model, deps, finish, error } = this;
    const { metrics } = deps;
    const failure = error instanceof ModelError ? error : undefined;
    const outcome = failure ? 'failed' : finish ? 'finished' : 'canceled';
    const seconds = (performance.now() - this.startedAt) / 1000;
    metrics.observe('sibyl_model_call_seconds', { model: model.id, outcome }, seconds);
    if (failure || finish) deps.onEnd(model, failure);
    this.endSpan(failure, outcome);
  }

  private endSpan(failure: ModelError | undefined, outcome: string): void {
    const { span, finish, text, call } = this;
    if (!span) return;
    const tokens = finish && {
      inputTokens: finish.usage.input,
      outputTokens: finish.usage.output,
    };
    const content =
      text === undefined ? {} : { input: JSON.stringify(call.messages), output: text };
    span.end({
      error: failure ? toModelCause(failure) : outcome === 'canceled' ? outcome : undefined,
      facts: { ...tokens, finishReason: finish?.reason, answeredBy: finish?.model, ...content },
      shown: tokens,
    });
  }
}

/** Logs and counts every failure of a provider with its cause, also if the call is retried. */
export function createFailureReport(
  logger: Logger,
  metrics: Metrics,
): NonNullable<ModelsOptions['onFailure']> {
  return (model, error, isRetried) => {
    const cause = toModelCause(error);
    metrics.count('sibyl_model_failures_total', { model, cause });
    const { host, status, code, text } = error.failure;
    logger.warn(
      { model, cause, host, status, code, reason: text },
      isRetried ? 'model call failed; trying again' : 'model call failed',
    );
  };
}

/** How long the result of a call is relevant. */
const RELEVANT_MS = 5 * 60 * 1000;

const messages: Readonly<Record<ErrorKind, string>> = {
  auth: 'The model provider rejected the key',
  billing: 'The model provider rejected the call because its credit is used up',
  rate_limit: 'The model provider limits the rate of requests',
  network: 'The model provider could not be reached',
  timeout: 'The model provider did not answer in time',
  server: 'The model provider reported an error',
  unknown: 'The last call to the model failed',
};

/** How the last call of the main model ended; makes no calls itself, since they cost money. */
export class ModelHealth {
  private last: { readonly at: number; readonly fault: ErrorKind | undefined } | undefined;
  private failingSince: Date | undefined;

  /** Reports that a call of the main model has ended. */
  record(fault: ErrorKind | undefined): void {
    this.last = { at: performance.now(), fault };
    this.failingSince = fault && (this.failingSince ?? new Date());
  }

  check(): ReadinessCheck {
    if (!this.last || performance.now() - this.last.at > RELEVANT_MS) {
      return { status: 'unknown', message: 'The model was not called in the last minutes' };
    }
    const { fault } = this.last;
    const since = this.failingSince?.toISOString();
    if (fault) return { status: 'failing', message: messages[fault], ...(since && { since }) };
    return { status: 'ok', message: 'The last call to the model succeeded' };
  }
}
