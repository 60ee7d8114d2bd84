import { type Model, type ModelCall, ModelError, type ModelPart } from './model.js';

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
