import type { FaultKind, ReadinessCheck } from '@sibyl/protocol';
import type { Model, ModelCall, ModelPart } from '../agent/model/model.js';
import { ModelFault } from '../agent/model/model-fault.js';
import type { Models } from '../agent/model/models.js';

/** How long a failed call says something about the model. */
const RELEVANT_MS = 5 * 60 * 1000;

const messages: Readonly<Record<FaultKind, string>> = {
  auth: 'The model provider rejected the key',
  billing: 'The model provider refused for lack of credit',
  rate_limit: 'The model provider limits the rate of requests',
  network: 'The model provider could not be reached',
  timeout: 'The model provider did not answer in time',
  server: 'The model provider reported an error',
  unknown: 'The last call of the model failed',
};

/** Knows how the calls of the main model went lately; makes none of its own, since calls cost money. */
export class ModelHealth {
  private mainId = '';
  private last: { readonly at: number; readonly fault: FaultKind | undefined } | undefined;

  /** The same models, observed. */
  watch(models: Models): Models {
    this.mainId = models.get('main').id;
    const observed = new Map<Model, Model>();
    const observe = (model: Model): Model => {
      const known = observed.get(model) ?? this.observe(model);
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

  check(): ReadinessCheck {
    if (!this.last || performance.now() - this.last.at > RELEVANT_MS) {
      return { status: 'unknown', message: 'The model was not called in the last minutes' };
    }
    const { fault } = this.last;
    if (fault) return { status: 'failing', message: messages[fault] };
    return { status: 'ok', message: 'The last call of the model succeeded' };
  }

  private observe(model: Model): Model {
    if (model.id !== this.mainId) return model;
    return { ...model, stream: (call) => this.observeCall(model, call) };
  }

  private async *observeCall(model: Model, call: ModelCall): AsyncGenerator<ModelPart> {
    try {
      for await (const part of model.stream(call)) {
        if (part.type === 'finish') this.last = { at: performance.now(), fault: undefined };
        yield part;
      }
    } catch (error) {
      if (error instanceof ModelFault) this.last = { at: performance.now(), fault: error.kind };
      throw error;
    }
  }
}
