import type { Model, ModelCall, ModelFinish, ModelPart } from '../../../src/models/model.js';
import { ModelFacts } from '../../../src/models/model-facts.js';

/** What a scripted model streams in one call: fixed parts, or parts computed from the call. */
export type ScriptedStep =
  | readonly ModelPart[]
  | ((call: ModelCall) => Iterable<ModelPart> | AsyncIterable<ModelPart>);

/** A model that follows a script, one step per call, and records its calls. */
export class ScriptedModel implements Model {
  readonly id: string = 'scripted/model';
  readonly label = 'Scripted';
  readonly provider = 'scripted';
  readonly facts: ModelFacts = new ModelFacts({ settings: { vision: false } });
  readonly calls: ModelCall[] = [];
  private readonly script: readonly ScriptedStep[];

  constructor(...script: readonly ScriptedStep[]) {
    this.script = script;
  }

  async *stream(call: ModelCall): AsyncGenerator<ModelPart> {
    const step = this.script[this.calls.length];
    this.calls.push(call);
    if (step === undefined) throw new Error('The script has no such step.');
    for await (const part of typeof step === 'function' ? step(call) : step) {
      call.signal.throwIfAborted();
      yield part;
    }
  }

  /** The messages of its latest call. */
  get lastMessages() {
    return this.calls.at(-1)?.messages ?? [];
  }
}

/** A step that says something and ends. */
export function say(text: string, reason: ModelFinish['reason'] = 'stop'): readonly ModelPart[] {
  return [{ type: 'text', text }, finish(reason)];
}

/** A step that calls tools: `[id, name, input]`, the input as a value or as the text the model wrote. */
export function callTools(...calls: readonly (readonly [string, string, unknown])[]) {
  return [...calls.map(([id, name, input]) => wantTool(id, name, input)), finish('tool-calls')];
}

export function wantTool(id: string, name: string, input: unknown): ModelPart {
  const text = typeof input === 'string' ? input : JSON.stringify(input);
  return { type: 'tool-call', call: { id, name, input: text } };
}

export function finish(reason: ModelFinish['reason'] = 'stop'): ModelFinish {
  return { type: 'finish', reason, usage: { input: 10, output: 5, cached: 2 } };
}
