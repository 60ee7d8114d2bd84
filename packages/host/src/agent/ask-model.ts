import { endWith } from './conversation/end-with.js';
import { Step } from './conversation/step.js';
import type { Meter } from './meter.js';
import type { Model, ModelUse } from './model/model.js';

/** One thing to ask outside of any conversation. */
export interface Question {
  readonly model: Model;
  readonly system: string;
  readonly prompt: string;
  readonly meter: Meter;
  readonly signal: AbortSignal;
  /** Characters after which nobody reads on. */
  readonly enough?: number | undefined;
}

/** Asks a model and reads its answer whole; what it cost is metered even if that fails. */
export async function askModel(
  question: Question,
): Promise<{ readonly text: string; readonly use: ModelUse }> {
  const { model, system, prompt, meter, signal, enough = Number.POSITIVE_INFINITY } = question;
  await meter.check();
  const call = {
    system,
    messages: [{ role: 'user' as const, content: prompt }],
    tools: [],
    signal,
  };
  const step = new Step(undefined);
  try {
    for await (const part of endWith(model.stream(call), signal)) {
      step.take(part);
      if (step.text.length > enough) break;
    }
    if (step.text.length <= enough) step.assertWhole();
  } finally {
    meter.add(step.useOf(model.id, call));
  }
  return { text: step.text, use: step.useOf(model.id, call) };
}
