import type { EarlierMessage } from '@sibyl/plugin-kit';
import { JsonObject, OracleError, type ToolCall } from '@sibyl/protocol';
import type { ChatMessage, Content, InputItem } from './schemas.js';

/** The result of a client tool. */
export interface ToolOutput {
  /** As it was given to the client. */
  readonly callId: string;
  readonly output: string;
}

/** A conversation in the terms of the host. */
export interface Conversation {
  readonly instructions: string;
  /** Before the message. */
  readonly history: readonly EarlierMessage[];
  /** Empty if the newest messages are results of tools. */
  readonly message: string;
  /** What is before the message, or the newest. */
  readonly outputs: readonly ToolOutput[];
}

/** One entry of either API. */
type Entry =
  | { readonly type: 'instructions'; readonly text: string }
  | { readonly type: 'user'; readonly text: string }
  | { readonly type: 'assistant'; readonly text: string; readonly calls: readonly Call[] }
  | ({ readonly type: 'output' } & ToolOutput);

interface Call {
  readonly id: string;
  readonly name: string;
  readonly args: string;
}

export const readChatMessages = (messages: readonly ChatMessage[]): Conversation =>
  readEntries(messages.map(toEntry));

/** Items of other types, such as reasoning, are ignored. */
export const readInputItems = (input: string | readonly InputItem[]): Conversation =>
  readEntries(
    typeof input === 'string' ? [{ type: 'user', text: input }] : input.flatMap(toInputEntry),
  );

function toEntry({ role, content, tool_calls, tool_call_id = '' }: ChatMessage): Entry {
  const text = readText(content);
  switch (role) {
    case 'system':
    case 'developer':
      return { type: 'instructions', text };
    case 'tool':
      return { type: 'output', callId: tool_call_id, output: text };
    case 'assistant': {
      const calls = (tool_calls ?? []).map(({ id, function: { name, arguments: args } }) => {
        return { id, name, args };
      });
      return { type: 'assistant', text, calls };
    }
    default:
      return { type: 'user', text };
  }
}

function toInputEntry(item: InputItem): Entry[] {
  const { type = 'message', role = 'user', call_id: id = '', name = '' } = item;
  const { arguments: args = '{}' } = item;
  switch (type) {
    case 'message':
      return [toEntry({ role, content: item.content })];
    case 'function_call':
      return [{ type: 'assistant', text: '', calls: [{ id, name, args }] }];
    case 'function_call_output':
      return [{ type: 'output', callId: id, output: readText(item.output) }];
    default:
      return [];
  }
}

function readEntries(entries: readonly Entry[]): Conversation {
  const instructions = entries
    .flatMap((entry) => (entry.type === 'instructions' ? [entry.text] : []))
    .join('\n\n');
  const said = entries.filter(({ type }) => type !== 'instructions');
  const last = said.at(-1);
  if (last?.type === 'user' && last.text.trim()) {
    const earlier = said.slice(0, -1);
    const history = toHistory(earlier);
    return { instructions, history, message: last.text, outputs: listNewest(earlier) };
  }
  if (last?.type !== 'output')
    throw invalid('The last message must be a text of the user, or the result of a tool');
  return { instructions, history: toHistory(said), message: '', outputs: listNewest(said) };
}

const listNewest = (entries: readonly Entry[]): ToolOutput[] =>
  entries
    .slice(entries.findLastIndex(({ type }) => type !== 'output') + 1)
    .filter((entry) => entry.type === 'output');

function toHistory(entries: readonly Entry[]): EarlierMessage[] {
  const outputs = new Map(
    entries.flatMap((entry) => (entry.type === 'output' ? [[entry.callId, entry.output]] : [])),
  );
  return entries.flatMap((entry): EarlierMessage[] => {
    if (entry.type === 'user') return [{ role: 'user', text: entry.text }];
    if (entry.type !== 'assistant') return [];
    const toolCalls = entry.calls.map((call) => toToolCall(call, outputs.get(call.id)));
    return [{ role: 'assistant', text: entry.text, toolCalls }];
  });
}

const toToolCall = ({ id, name, args }: Call, output: string | undefined): ToolCall => ({
  id,
  name,
  args: parseArguments(args),
  status: output === undefined ? 'error' : 'done',
  output: JSON.stringify(output ?? 'The outcome is unknown.'),
});

function parseArguments(text: string): JsonObject {
  try {
    return JsonObject.safeParse(JSON.parse(text)).data ?? {};
  } catch {
    return {};
  }
}

const TEXT_PARTS = ['text', 'input_text', 'output_text', 'refusal'];

function readText(content: Content): string {
  if (typeof content === 'string') return content;
  const parts = content ?? [];
  const other = parts.find(({ type }) => !TEXT_PARTS.includes(type));
  if (other) throw invalid(`Content of type ${other.type} is not supported; send text`);
  return parts.map(({ text = '' }) => text).join('');
}

export const invalid = (message: string) => new OracleError('bad_request', { message });

/** Throws if results of tools would be lost, because their calls are unknown. */
export function assertCalls({ message, history, outputs }: Conversation): void {
  if (message) return;
  const calls = history.flatMap(({ toolCalls = [] }) => toolCalls.map(({ id }) => id));
  const unknown = outputs.find(({ callId }) => !calls.includes(callId));
  if (unknown) throw invalid(`No function call waits for the output of ${unknown.callId}`);
}
