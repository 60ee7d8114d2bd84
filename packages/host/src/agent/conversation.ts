import type { Attachment, MessagePart, ToolCall } from '@sibyl/protocol';
import {
  type Model,
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
import { listAttachments, type Message } from '../store/message-store.js';
import { type AgentPart, warning } from './agent.js';
import { estimateCall, estimateTokens } from './estimate-tokens.js';
import { composeNote, type NoteOptions } from './message-context.js';
import type { CallIds, ParsedCall } from './run-tools.js';
import type { AssistantMessage } from './steps.js';

/** The fields of a stored message that the model sees. */
export type HistoryMessage = Pick<
  Message,
  'type' | 'content' | 'parts' | 'metadata' | 'isComplete' | 'createdAt'
>;

/** What the notes of the messages say about the turn; everything but the zone is about the newest message. */
export type TurnNote = Pick<NoteOptions, 'timezone' | 'now' | 'degraded'>;

const INCOMPLETE = '(This answer was interrupted before it was complete.)';
const NO_TEXT = '(No text.)';

/** Converts stored messages, oldest first, to the conversation for the model. */
export function toModelMessages(
  messages: readonly HistoryMessage[],
  newest: TurnNote,
): ModelMessage[] {
  const asked = messages.findLastIndex(({ type }) => type === 'human');
  const earlier = { timezone: newest.timezone };
  return messages.flatMap((message, i) => toMessages(message, i === asked ? newest : earlier));
}

function toMessages(message: HistoryMessage, turn: TurnNote): ModelMessage[] {
  switch (message.type) {
    case 'human':
      return [toUserMessage(message, turn)];
    case 'ai':
      return toAnswerMessages(message);
    default:
      message.type satisfies never;
      // Rows of a newer version must not fail a turn.
      return [];
  }
}

function toUserMessage(message: HistoryMessage, turn: TurnNote): UserMessage {
  const { createdAt: sentAt, metadata } = message;
  const attachments = listAttachments(message);
  return {
    role: 'user',
    content: humanText(message.content, attachments),
    note: composeNote({ sentAt, metadata, ...turn }),
    ...(attachments.length > 0 && { attachments }),
  };
}

function humanText(content: string, attachments: readonly Attachment[]): string {
  const files = attachments.map(({ filename, mimetype }) => `(Attached: ${filename}, ${mimetype})`);
  return [...(content.trim() ? [content] : []), ...files].join('\n') || NO_TEXT;
}

/** Texts and calls in the order they happened. An empty answer is omitted, unless it was interrupted. */
function toAnswerMessages({ content, parts, isComplete }: HistoryMessage): ModelMessage[] {
  const steps = splitIntoSteps(parts ?? [{ type: 'text', text: content }]);
  const last = steps.at(-1);
  const said = last && last.calls.length === 0 ? last.text : '';
  const text = [said, isComplete ? '' : INCOMPLETE].filter(Boolean).join(PARAGRAPH);
  const calls = steps.flatMap((step) => (step.calls.length > 0 ? toCallMessages(step) : []));
  return text ? [...calls, { role: 'assistant', text }] : calls;
}

/** What the model said in one call, and the tools it called then. */
interface AnswerStep {
  readonly text: string;
  readonly calls: readonly ToolCall[];
}

/** A text after a call begins a new step. */
function splitIntoSteps(parts: readonly MessagePart[]): AnswerStep[] {
  let step = { text: '', calls: [] as ToolCall[] };
  const steps = [step];
  for (const part of parts) {
    if (part.type === 'tool-call') step.calls.push(part.call);
    if (part.type !== 'text') continue;
    if (step.calls.length > 0) {
      step = { text: '', calls: [] };
      steps.push(step);
    }
    step.text += part.text;
  }
  return steps.map(({ text, calls }) => ({ text: removeSeparator(text), calls }));
}

const removeSeparator = (text: string) => (text.trim() ? text.replace(/^\n+/, '') : '');

function toCallMessages({ text, calls }: AnswerStep): ModelMessage[] {
  const results = calls.map(({ id, name, output, status }) => {
    return { id, name, output, isError: status === 'error' };
  });
  const toolCalls = calls.map(({ id, name, args }) => ({ id, name, input: JSON.stringify(args) }));
  return [
    { role: 'assistant', text, toolCalls },
    { role: 'tool', results },
  ];
}

/** Separates the texts of two steps in the stored answer. */
export const PARAGRAPH = '\n\n';

/** One model call, collected while it streams. */
export class Step {
  readonly calls: ModelToolCall[] = [];
  private said = '';
  private reasoning = '';
  private ending: ModelFinish | undefined;
  private answeredBy: Pick<Model, 'id' | 'facts'> | undefined;

  /** `before` is the previous step, if it had output. */
  constructor(private readonly before: Step | undefined) {}

  get text(): string {
    return this.said;
  }

  /** Whether the turn has produced text until the end of this step. */
  get hasOutput(): boolean {
    return this.said !== '' || this.before !== undefined;
  }

  /** Collects a part; returns the part that the user sees, if any. */
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
      case 'warning':
        this.answeredBy = part.answeredBy ?? this.answeredBy;
        return warning(part.code, part.message);
      default:
        return part satisfies never;
    }
  }

  /** The tokens of the prompt, if the model reported them. */
  get reportedInput(): number | undefined {
    return (!this.ending?.model && this.ending?.usage.input) || undefined;
  }

  /** Whether nothing of the answer has arrived, so that the call can be repeated. */
  get isEmpty(): boolean {
    return this.said === '' && this.reasoning === '' && this.calls.length === 0;
  }

  /** Returns the cost of the call as the model reported it, otherwise an estimate. */
  countUse(asked: Pick<Model, 'id' | 'facts'>, call: ModelCall): ModelUse {
    const { id, facts } = this.answeredBy ?? asked;
    const { usage: reported, model = id } = this.ending ?? {};
    if (reported && reported.input + reported.output > 0) return { model, ...reported };
    const estimated = this.estimate(call);
    // The prices of another model that answered are unknown here.
    const cost = model === id ? facts.computeCost(estimated) : undefined;
    return { model, ...estimated, ...(cost !== undefined && { cost }) };
  }

  /** Throws if the stream ended without a finish. */
  assertWhole(): void {
    void this.finish;
  }

  /** Yields warnings about an incomplete answer; throws if the stream ended without a finish. */
  *warnings(): Generator<AgentPart> {
    const { reason } = this.finish;
    if (reason === 'length') yield warning('answer_cut', TRUNCATED);
    if (reason === 'content-filter') yield warning('answer_filtered', FILTERED);
  }

  /** Converts this step to a message of the next call. */
  toMessage(calls: readonly ParsedCall[]): AssistantMessage {
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

  /** A call that failed without output costs nothing; one that the user stopped has been charged. */
  private estimate(call: ModelCall): ModelUsage {
    const texts = [this.said, this.reasoning, ...this.calls.map(({ input }) => input)];
    const output = texts.reduce((sum, text) => sum + estimateTokens(text), 0);
    const hasBegun = output > 0 || this.ending !== undefined || call.signal.aborted;
    return { input: hasBegun ? estimateCall(call) : 0, output, cached: 0 };
  }

  private get finish(): ModelFinish {
    if (this.ending !== undefined) return this.ending;
    throw new ModelError("The model's answer ended too early.", {
      kind: 'server',
      retryable: true,
    });
  }
}

const TRUNCATED = 'The model reached its output limit; the answer may be incomplete.';
const FILTERED = "The model's content filter stopped the answer.";

type UserMessage = Extract<ModelMessage, { role: 'user' }>;

const NO_ANSWER = '(No answer was given.)';
const BEGAN_EARLIER = '(The conversation began earlier.)';
const NO_RESULT = JSON.stringify({ error: 'The call was interrupted before it had a result.' });

/**
 * Makes a conversation valid for every provider: it begins with the user, user and assistant alternate, and every tool
 * call has a unique id and exactly one result directly after it.
 */
export function toWellFormed(messages: readonly ModelMessage[], ids: CallIds): ModelMessage[] {
  const conversation = new WellFormedConversation(ids);
  for (const message of messages) conversation.add(message);
  return conversation.finish();
}

/** A call without a result yet, with the id that its result refers to. */
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
    this.messages.push(message.content.length > 0 ? message : { ...message, content: NO_TEXT });
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

  /** Adds a result for every open call; results without a call are dropped. */
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
