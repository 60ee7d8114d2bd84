import type { EarlierMessage, SurfaceFile } from '@sibyl/plugin-kit/surface';
import { JsonObject, OracleError, type ToolCall } from '@sibyl/protocol';
import type { ChatMessage, Content, ContentPart, FileFields, InputItem } from './schemas.js';

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
  /** Undefined if the newest messages are results of tools. */
  readonly question: Question | undefined;
  /** What is before the message, or the newest. */
  readonly outputs: readonly ToolOutput[];
}

/** The message to answer. */
export interface Question {
  readonly text: string;
  readonly files: readonly SurfaceFile[];
}

/** One entry of either API. */
type Entry =
  | { readonly type: 'instructions'; readonly text: string }
  | ({ readonly type: 'user' } & Question)
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
    typeof input === 'string'
      ? [{ type: 'user', text: input, files: [] }]
      : input.flatMap(toInputEntry),
  );

function toEntry({ role, content, tool_calls, tool_call_id = '' }: ChatMessage): Entry {
  if (role === 'user') return { type: 'user', ...readQuestion(content) };
  const text = readText(content);
  switch (role) {
    case 'system':
    case 'developer':
      return { type: 'instructions', text };
    case 'tool':
      return { type: 'output', callId: tool_call_id, output: text };
    default: {
      role satisfies 'assistant';
      const calls = (tool_calls ?? []).map(({ id, function: { name, arguments: args } }) => {
        return { id, name, args };
      });
      return { type: 'assistant', text, calls };
    }
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
  if (last?.type === 'user' && (last.text.trim() || last.files.length > 0)) {
    const earlier = said.slice(0, -1);
    const { text, files } = last;
    const outputs = listNewest(earlier);
    return { instructions, history: toHistory(earlier), question: { text, files }, outputs };
  }
  if (last?.type === 'assistant' && last.calls.length === 0 && last.text.trim())
    return { instructions, history: toHistory(said), question: CONTINUE, outputs: [] };
  if (last?.type !== 'output')
    throw invalid(
      'The last message must be of the user, the result of a tool, or an answer to continue',
    );
  const outputs = listNewest(said);
  return { instructions, history: toHistory(said), question: undefined, outputs };
}

/** The host has no prefill: the model sees the beginning of the answer, and writes what follows. */
const CONTINUE: Question = {
  text: 'Continue your last message exactly where it ends, and repeat nothing of it.',
  files: [],
};

const listNewest = (entries: readonly Entry[]): ToolOutput[] =>
  entries
    .slice(entries.findLastIndex(({ type }) => type !== 'output') + 1)
    .filter((entry) => entry.type === 'output');

function toHistory(entries: readonly Entry[]): EarlierMessage[] {
  const outputs = new Map(
    entries.flatMap((entry) => (entry.type === 'output' ? [[entry.callId, entry.output]] : [])),
  );
  return entries.flatMap((entry): EarlierMessage[] => {
    if (entry.type === 'user') return [{ role: 'user', text: entry.text, files: entry.files }];
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

function readText(content: Content): string {
  const { text, files } = readQuestion(content);
  if (files.length > 0) throw invalid('Only messages of the user may contain images and files');
  return text;
}

function readQuestion(content: Content): Question {
  if (typeof content === 'string') return { text: content, files: [] };
  const parts = content ?? [];
  const text = parts.map((part) => (isTextPart(part) ? (part.text ?? '') : '')).join('');
  return { text, files: parts.filter((part) => !isTextPart(part)).map(toFile) };
}

const TEXT_PARTS = ['text', 'input_text', 'output_text', 'refusal'];

const isTextPart = ({ type }: ContentPart) => TEXT_PARTS.includes(type);

function toFile({ type, image_url, file, ...part }: ContentPart): SurfaceFile {
  switch (type) {
    case 'image_url':
    case 'input_image': {
      const url = typeof image_url === 'object' ? image_url?.url : image_url;
      if (url) return { url };
      throw invalid(`${type}: send the image as an https: or data: URL in image_url`);
    }
    case 'file':
    case 'input_file':
      return toDocument(file ?? part);
    default:
      throw invalid(`Content of type ${type} is not supported; send text, images or files`);
  }
}

function toDocument({ filename, file_data: data, file_url }: FileFields): SurfaceFile {
  const name = filename ?? undefined;
  if (file_url) return { name, url: file_url };
  if (!data) throw invalid('A file needs file_data or file_url; ids of files are not supported');
  return { name, url: data.startsWith('data:') ? data : `data:;base64,${data}` };
}

export const invalid = (message: string) => new OracleError('bad_request', { message });

/** Throws if results of tools would be lost, because their calls are unknown. */
export function assertCalls({ question, history, outputs }: Conversation): void {
  if (question) return;
  const calls = history.flatMap(({ toolCalls = [] }) => toolCalls.map(({ id }) => id));
  const unknown = outputs.find(({ callId }) => !calls.includes(callId));
  if (unknown) throw invalid(`No function call waits for the output of ${unknown.callId}`);
}
