import {
  type ModelCall,
  ModelError,
  type ModelFinish,
  type ModelMessage,
  type ModelPart,
  type ModelToolCall,
  type ModelToolResult,
  type ModelUsage,
  type ModelUse,
} from '../models/model.js';
import type { MessageBody } from '../store/message.js';
import { type AgentPart, warning } from './agent.js';
import { estimateCall, estimateTokens } from './estimate-tokens.js';
import type { CallIds, ParsedCall } from './run-tools.js';

/** What of a stored message the model gets to see. */
export type HistoryMessage = Pick<
  MessageBody,
  'type' | 'content' | 'toolCalls' | 'attachments' | 'isComplete'
>;

const INCOMPLETE = '(This answer was cut off before it was finished.)';
const NO_TEXT = '(No text.)';

/** Turns stored messages, oldest first, into the conversation a model is shown. */
export function toModelMessages(messages: readonly HistoryMessage[]): ModelMessage[] {
  return messages.flatMap(toMessages);
}

function toMessages(message: HistoryMessage): ModelMessage[] {
  switch (message.type) {
    case 'human':
      return [{ role: 'user', content: humanText(message) }];
    case 'ai':
      return [...toToolMessages(message), ...toAnswerMessages(message)];
    default:
      message.type satisfies never;
      // Rows of a newer version are no reason to fail a turn.
      return [];
  }
}

function humanText({ content, attachments }: HistoryMessage): string {
  const files = (attachments ?? []).map(
    ({ filename, mimetype }) => `(Attached: ${filename}, ${mimetype})`,
  );
  return [content.trim() ? content : '', ...files].filter(Boolean).join('\n') || NO_TEXT;
}

function toToolMessages({ toolCalls = [] }: HistoryMessage): ModelMessage[] {
  if (toolCalls.length === 0) return [];
  const calls = toolCalls.map(({ id, name, args }) => ({ id, name, input: JSON.stringify(args) }));
  const results = toolCalls.map(({ id, name, output, status }) => {
    return { id, name, output, isError: status === 'error' };
  });
  return [
    { role: 'assistant', text: '', toolCalls: calls },
    { role: 'tool', results },
  ];
}

/** An answer without words says nothing, unless it was cut off: then that is what there is to say. */
function toAnswerMessages({ content, isComplete }: HistoryMessage): ModelMessage[] {
  const said = content.trim() ? content : '';
  const text = [said, isComplete ? '' : INCOMPLETE].filter(Boolean).join('\n\n');
  return text ? [{ role: 'assistant', text }] : [];
}

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
  get hasOutput(): boolean {
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
  countUse(model: string, call: ModelCall): ModelUse {
    const reported = this.ending?.usage;
    return {
      model,
      ...(reported && reported.input + reported.output > 0 ? reported : this.estimate(call)),
    };
  }

  /** Throws if its stream just stopped. */
  assertWhole(): void {
    void this.finish;
  }

  /** What its answer lacks; throws if its stream just stopped. */
  *warnings(): Generator<AgentPart> {
    const { reason } = this.finish;
    if (reason === 'length') yield warning('answer_cut', TRUNCATED);
    if (reason === 'content-filter') yield warning('answer_filtered', FILTERED);
  }

  /** This step as the next call shows it to the model. */
  toMessage(calls: readonly ParsedCall[]): ModelMessage {
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
    throw new ModelError('The answer of the model ended too early.', {
      kind: 'server',
      retryable: true,
    });
  }
}

const TRUNCATED = 'The model reached its output limit; the answer may be cut short.';
const FILTERED = "The model's content filter stopped the answer.";

type UserMessage = Extract<ModelMessage, { role: 'user' }>;
type AssistantMessage = Extract<ModelMessage, { role: 'assistant' }>;

const NO_ANSWER = '(No answer was given.)';
const BEGAN_EARLIER = '(The conversation began earlier.)';
const NO_RESULT = JSON.stringify({ error: 'The call was cut off before it had a result.' });

/**
 * Makes a conversation one that every provider takes: it begins with the user, user and assistant
 * take turns, every tool call has an id of its own and exactly one result right after it.
 */
export function toWellFormed(messages: readonly ModelMessage[], ids: CallIds): ModelMessage[] {
  const conversation = new WellFormedConversation(ids);
  for (const message of messages) conversation.add(message);
  return conversation.finish();
}

/** A call that waits for its result, under the id the result will name. */
interface UnansweredCall {
  readonly givenId: string;
  readonly call: ModelToolCall;
}

class WellFormedConversation {
  private readonly messages: ModelMessage[] = [];
  private open: UnansweredCall[] = [];

  constructor(private readonly ids: CallIds) {}

  add(message: ModelMessage): void {
    switch (message.role) {
      case 'user':
        this.addUser(message);
        break;
      case 'assistant':
        this.addAssistant(message);
        break;
      case 'tool':
        this.closeCalls(message.results);
        break;
      default:
        message satisfies never;
    }
  }

  finish(): ModelMessage[] {
    this.closeCalls([]);
    return this.messages;
  }

  private addUser(message: UserMessage): void {
    this.closeCalls([]);
    const last = this.messages.at(-1);
    if (last && last.role !== 'assistant') {
      this.messages.push({ role: 'assistant', text: NO_ANSWER });
    }
    this.messages.push(message.content.length > 0 ? message : { role: 'user', content: NO_TEXT });
  }

  private addAssistant(message: AssistantMessage): void {
    this.closeCalls([]);
    const last = this.messages.at(-1);
    if (last === undefined) this.messages.push({ role: 'user', content: BEGAN_EARLIER });
    const before = last?.role === 'assistant' ? (this.messages.pop() as AssistantMessage) : null;
    const said = [before?.text, message.text].filter(Boolean).join('\n\n');
    const { toolCalls, ...rest } = message;
    this.open = (toolCalls ?? []).map((call) => this.takeId(call));
    const calls = this.open.map(({ call }) => call);
    if (calls.length > 0) this.messages.push({ ...rest, text: said, toolCalls: calls });
    else this.messages.push({ ...rest, text: said || NO_ANSWER });
  }

  private takeId(call: ModelToolCall): UnansweredCall {
    return { givenId: call.id, call: { ...call, id: this.ids.take(call.id) } };
  }

  /** Answers every open call, from the results where they have one; results of no call vanish. */
  private closeCalls(results: readonly ModelToolResult[]): void {
    if (this.open.length === 0) return;
    const left = [...results];
    const closed = this.open.map(({ givenId, call: { id, name } }): ModelToolResult => {
      const found = left.findIndex((result) => result.id === givenId);
      const [result] = found < 0 ? [] : left.splice(found, 1);
      return result ? { ...result, id, name } : { id, name, output: NO_RESULT, isError: true };
    });
    this.open = [];
    this.messages.push({ role: 'tool', results: closed });
  }
}
