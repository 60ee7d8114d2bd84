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
  type ModelRole,
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
  const byRole: Record<ModelRole, Model> = {
    main: observe(models.get('main')),
    subagent: observe(models.get('subagent')),
    utility: observe(models.get('utility')),
  };
  return {
    ...models,
    get: (role) => byRole[role],
    find: (id) => {
      const model = models.find(id);
      return model && observe(model);
    },
  };
}

/** One generator for everything: each one costs time for every token. */
async function* observeCall(
  model: Model,
  given: ModelCall,
  deps: ObservedModelsDeps,
): AsyncGenerator<ModelPart> {
  const { id } = model;
  const span = startSpan({ kind: 'model', name: id, facts: { operation: 'chat', model: id } });
  const traceparent = span?.traceparent;
  const call = traceparent ? { ...given, headers: { traceparent } } : given;
  const observed: ObservedCall = { span, call, startedAt: performance.now() };
  if (span?.capturesContent) observed.text = '';
  try {
    for await (const part of model.stream(call)) {
      if (part.type === 'finish') observed.finish = part;
      else if (observed.text !== undefined && part.type === 'text') observed.text += part.text;
      yield part;
    }
  } catch (error) {
    observed.error = error;
    throw error;
  } finally {
    endCall(model, observed, deps);
  }
}

/** What is known about one call of a model. */
interface ObservedCall {
  readonly span: ActiveSpan | undefined;
  readonly call: ModelCall;
  readonly startedAt: number;
  finish?: ModelFinish;
  error?: unknown;
  /** What the model wrote, if it is to be exported. */
  text?: string;
}

function endCall(
  model: Model,
  { span, call, startedAt, finish, error, text }: ObservedCall,
  { metrics, onEnd }: ObservedModelsDeps,
): void {
  const failure = error instanceof ModelError ? error : undefined;
  const outcome = failure ? 'failed' : finish ? 'finished' : 'canceled';
  const seconds = (performance.now() - startedAt) / 1000;
  metrics.observe('sibyl_model_call_seconds', { model: model.id, outcome }, seconds);
  if (failure || finish) onEnd(model, failure);
  if (!span) return;
  const tokens = finish && { inputTokens: finish.usage.input, outputTokens: finish.usage.output };
  const content = text === undefined ? {} : { input: JSON.stringify(call.messages), output: text };
  span.end({
    error: failure ? toModelCause(failure) : outcome === 'canceled' ? outcome : undefined,
    facts: { ...tokens, finishReason: finish?.reason, answeredBy: finish?.model, ...content },
    shown: tokens,
  });
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
