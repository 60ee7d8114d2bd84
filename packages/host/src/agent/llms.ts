import type { Llms, ModelRole } from '@sibyl/plugin-kit';
import { askModel } from './ask-model.js';
import type { Meter } from './meter.js';
import type { Model } from './model/model.js';

interface LlmsParts {
  readonly modelFor: (role: ModelRole) => Model;
  readonly meter: Meter;
  /** Ends every call. */
  readonly signal: AbortSignal;
}

/** Lets plugins ask models outside of the conversation. */
export function createLlms({ modelFor, meter, signal: ending }: LlmsParts): Llms {
  return {
    get: (role) => ({
      generate: async ({ system = '', prompt, signal }) => {
        const both = signal ? AbortSignal.any([signal, ending]) : ending;
        return askModel({ model: modelFor(role), system, prompt, meter, signal: both });
      },
    }),
  };
}
