import type { CallIds } from '../calls/call-ids.js';
import type { ModelMessage, ModelToolCall, ModelToolResult } from '../model/model.js';

type UserMessage = Extract<ModelMessage, { role: 'user' }>;
type AssistantMessage = Extract<ModelMessage, { role: 'assistant' }>;

const NO_ANSWER = '(No answer was given.)';
const NO_TEXT = '(No text.)';
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
interface OpenCall {
  readonly givenId: string;
  readonly call: ModelToolCall;
}

class WellFormedConversation {
  private readonly messages: ModelMessage[] = [];
  private open: OpenCall[] = [];

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

  private takeId(call: ModelToolCall): OpenCall {
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
