import type { Llms } from '@sibyl/plugin-kit';
import type { ModelRole } from '@sibyl/plugin-kit/host';
import { abortableIterable } from '@sibyl/server-kit';
import type { Model, ModelUse } from '../models/model.js';
import type { Meter } from './agent.js';
import { Step } from './conversation.js';

/** A prompt outside of any conversation. */
export interface TextRequest {
  readonly model: Model;
  readonly system: string;
  readonly prompt: string;
  readonly meter: Meter;
  readonly signal: AbortSignal;
  /** Stops reading after this many characters. */
  readonly maxLength?: number | undefined;
}

/** Returns the complete answer of a model; its cost is metered even if the call fails. */
export async function generateText(
  question: TextRequest,
): Promise<{ readonly text: string; readonly use: ModelUse }> {
  const { model, system, prompt, meter, signal, maxLength = Number.POSITIVE_INFINITY } = question;
  await meter.check();
  const call = {
    system,
    messages: [{ role: 'user' as const, content: prompt }],
    tools: [],
    // Titles and summaries are not worth it.
    reasoning: 'omit' as const,
    signal,
  };
  const step = new Step(undefined);
  try {
    for await (const part of abortableIterable(model.stream(call), signal)) {
      step.take(part);
      if (step.text.length > maxLength) break;
    }
    if (step.text.length <= maxLength) step.assertWhole();
  } finally {
    meter.add(step.countUse(model, call));
  }
  return { text: step.text, use: step.countUse(model, call) };
}

interface LlmsDeps {
  readonly modelFor: (role: ModelRole) => Model;
  readonly meter: Meter;
  /** Aborts every call. */
  readonly signal: AbortSignal;
}

/** Gives plugins access to models outside of the conversation. */
export function createLlms({ modelFor, meter, signal: ending }: LlmsDeps): Llms {
  return {
    get: (role) => ({
      generate: async ({ system = '', prompt, signal }) => {
        const both = signal ? AbortSignal.any([signal, ending]) : ending;
        return generateText({ model: modelFor(role), system, prompt, meter, signal: both });
      },
    }),
  };
}
