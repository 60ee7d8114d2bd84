import type { AgentPart } from '../agent.js';
import type { WantedCall } from '../calls/wanted-call.js';
import type { ModelFinish, ModelMessage, ModelPart, ModelToolCall } from '../model/model.js';
import { ModelFault } from '../model/model-fault.js';
import { warning } from '../warning.js';

/** Parts the texts of two steps, which would else run into each other in the stored answer. */
const PARAGRAPH = '\n\n';

/** One model call, collected while it streams. */
export class Step {
  readonly calls: ModelToolCall[] = [];
  private text = '';
  private reasoning = '';
  private ending: ModelFinish | undefined;

  /** `before` is the step before, if it had something to say. */
  constructor(private readonly before: Step | undefined) {}

  /** Whether the turn has said anything up to here. */
  get hasSpoken(): boolean {
    return this.text !== '' || this.before !== undefined;
  }

  /** Keeps a part; what the user sees of it is given back. */
  take(part: ModelPart): AgentPart | undefined {
    switch (part.type) {
      case 'text':
        return this.takeText(part);
      case 'reasoning':
        this.reasoning += part.text;
        return part;
      case 'tool-call':
        this.calls.push(part.call);
        return undefined;
      case 'finish':
        this.ending = part;
        return undefined;
      default:
        return part satisfies never;
    }
  }

  /** What the step cost and what it lacks; throws if its stream just stopped. */
  *summary(model: string): Generator<AgentPart> {
    const { usage, reason } = this.finish;
    yield { type: 'usage', model, usage };
    if (reason === 'length') yield warning('answer_cut', CUT);
    if (reason === 'content-filter') yield warning('answer_filtered', FILTERED);
  }

  /** This step as the next call shows it to the model. */
  toMessage(calls: readonly WantedCall[]): ModelMessage {
    const { providerData } = this.finish;
    return {
      role: 'assistant',
      text: this.text,
      ...(this.reasoning !== '' && { reasoning: this.reasoning }),
      toolCalls: calls.map(({ id, name, args }) => ({ id, name, input: JSON.stringify(args) })),
      ...(providerData !== undefined && { providerData }),
    };
  }

  private takeText(part: Extract<ModelPart, { type: 'text' }>): AgentPart {
    const isFirst = this.text === '' && this.before !== undefined;
    this.text += part.text;
    return isFirst ? { type: 'text', text: PARAGRAPH + part.text } : part;
  }

  private get finish(): ModelFinish {
    if (this.ending !== undefined) return this.ending;
    throw new ModelFault('The answer of the model ended too early.', {
      kind: 'server',
      retryable: true,
    });
  }
}

const CUT = 'The model reached its output limit; the answer may be cut short.';
const FILTERED = "The model's content filter stopped the answer.";
