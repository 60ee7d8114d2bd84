import type { AgentPart } from '../agent.js';
import { estimateCall, estimateTokens } from '../budget/estimate-tokens.js';
import type { WantedCall } from '../calls/wanted-call.js';
import type {
  ModelCall,
  ModelFinish,
  ModelMessage,
  ModelPart,
  ModelToolCall,
  ModelUsage,
  ModelUse,
} from '../model/model.js';
import { ModelFault } from '../model/model-fault.js';
import { warning } from '../warning.js';

/** Parts the texts of two steps, which would else run into each other in the stored answer. */
const PARAGRAPH = '\n\n';

/** One model call, collected while it streams. */
export class Step {
  readonly calls: ModelToolCall[] = [];
  private said = '';
  private reasoning = '';
  private ending: ModelFinish | undefined;

  /** `before` is the step before, if it had something to say. */
  constructor(private readonly before: Step | undefined) {}

  get text(): string {
    return this.said;
  }

  /** Whether the turn has said anything up to here. */
  get hasSpoken(): boolean {
    return this.said !== '' || this.before !== undefined;
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

  /** What the call cost: as the model tells, else about as much as it sent and got. */
  useOf(model: string, call: ModelCall): ModelUse {
    const told = this.ending?.usage;
    return { model, ...(told && told.input + told.output > 0 ? told : this.estimate(call)) };
  }

  /** Throws if its stream just stopped. */
  assertWhole(): void {
    void this.finish;
  }

  /** What its answer lacks; throws if its stream just stopped. */
  *warnings(): Generator<AgentPart> {
    const { reason } = this.finish;
    if (reason === 'length') yield warning('answer_cut', CUT);
    if (reason === 'content-filter') yield warning('answer_filtered', FILTERED);
  }

  /** This step as the next call shows it to the model. */
  toMessage(calls: readonly WantedCall[]): ModelMessage {
    const { providerData } = this.finish;
    return {
      role: 'assistant',
      text: this.said,
      ...(this.reasoning !== '' && { reasoning: this.reasoning }),
      toolCalls: calls.map(({ id, name, args }) => ({ id, name, input: JSON.stringify(args) })),
      ...(providerData !== undefined && { providerData }),
    };
  }

  private takeText(part: Extract<ModelPart, { type: 'text' }>): AgentPart {
    const isFirst = this.said === '' && this.before !== undefined;
    this.said += part.text;
    return isFirst ? { type: 'text', text: PARAGRAPH + part.text } : part;
  }

  /** A call that failed before a word cost nothing; one the user stopped was paid for by then. */
  private estimate(call: ModelCall): ModelUsage {
    const texts = [this.said, this.reasoning, ...this.calls.map(({ input }) => input)];
    const output = texts.reduce((sum, text) => sum + estimateTokens(text), 0);
    const hasBegun = output > 0 || this.ending !== undefined || call.signal.aborted;
    return { input: hasBegun ? estimateCall(call) : 0, output, cached: 0 };
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
