import type { ModelCall, ModelMessage, ModelTool, ModelToolResult, UserPart } from '../model.js';

/** The parts of a model call that the rules use. */
export interface OfflineRequest {
  readonly system: string;
  /** All texts of the conversation, oldest first. */
  readonly texts: readonly string[];
  /** The newest message of the user, without its files: what these say is not what the user wants. */
  readonly said: string;
  /** What the host says about its files, and what they say. */
  readonly attached: string;
  /** The note of the host about it. */
  readonly note: string;
  readonly fileCount: number;
  /** The number of tool messages since then. */
  readonly step: number;
  /** The results in the last message, if it is a tool message. */
  readonly results: readonly ModelToolResult[];
  readonly tools: ReadonlyMap<string, ModelTool>;
  readonly now: Date;
}

export interface OfflineToolCall {
  readonly name: string;
  readonly input: Readonly<Record<string, unknown>>;
}

export interface OfflineReply {
  readonly text?: string;
  readonly calls?: readonly OfflineToolCall[];
  /** Delay between words. */
  readonly pauseMs?: number;
}

/** One rule: returns a reply if the request matches. */
export type Intent = (request: OfflineRequest) => OfflineReply | undefined;

/** Extracts the parts of a call that the rules use. */
export function readRequest(call: ModelCall, now: Date): OfflineRequest {
  const { messages } = call;
  const asked = messages.findLastIndex(({ role }) => role === 'user');
  const question = messages[asked];
  const last = messages.at(-1);
  const [own = '', ...attached] = question ? listTexts(question) : [];
  return {
    system: call.system,
    texts: messages.map(getText).filter(Boolean),
    said: own.trim(),
    attached: attached.join('\n'),
    note: (question?.role === 'user' && question.note) || '',
    fileCount: question?.role === 'user' ? filterParts(question.content, 'file').length : 0,
    step: messages.slice(asked + 1).filter(({ role }) => role === 'tool').length,
    results: last?.role === 'tool' ? last.results : [],
    tools: new Map(call.tools.map((tool) => [tool.name, tool])),
    now,
  };
}

/** Returns the text of a message without tool results. */
export function getText(message: ModelMessage): string {
  switch (message.role) {
    case 'user':
      return listTexts(message).join('\n');
    case 'assistant':
      return message.text;
    case 'tool':
      return '';
    default:
      return message satisfies never;
  }
}

function listTexts(message: ModelMessage): string[] {
  if (message.role !== 'user') return [];
  if (typeof message.content === 'string') return [message.content];
  return filterParts(message.content, 'text').map(({ text }) => text);
}

function filterParts<T extends UserPart['type']>(content: string | readonly UserPart[], type: T) {
  const parts = typeof content === 'string' ? [] : content;
  return parts.filter((part): part is Extract<UserPart, { type: T }> => part.type === type);
}

/** Removes these characters from the end of a text; a regular expression would take quadratic time. */
export function withoutEnd(text: string, characters: string): string {
  let end = text.length;
  while (end > 0 && characters.includes(text.charAt(end - 1))) end -= 1;
  return text.slice(0, end);
}

const COUNT_LIMIT = 1000;
const SLOW_PAUSE_MS = 50;
const QUOTE_LENGTH = 200;

/** Answers with the time from the note of the message, otherwise from the clock. */
export const answerTime: Intent = ({ said, note, now }) => {
  if (!hasInOrder(said, /\bwhat('s| is)?\b/i, /\b(time|day|date)\b/i)) return undefined;
  const [, time] = /^\[Current time: (.+)\]$/m.exec(note) ?? /^\[Sent: (.+)\]$/m.exec(note) ?? [];
  return { text: `It is ${time ?? `${now.toISOString()} (UTC)`}.` };
};

/** Whether a line matches two patterns in this order; a single pattern would take quadratic time on long lines. */
function hasInOrder(said: string, first: RegExp, second: RegExp): boolean {
  return said.split('\n').some((line) => {
    const found = first.exec(line);
    return found !== null && second.test(line.slice(found.index + found[0].length));
  });
}

/** Lists the available tools. */
export const listCapabilities: Intent = ({ said, tools }) => {
  const asks =
    /\bwhat (can|do) you do\b|^help\W*$/i.test(said) ||
    hasInOrder(said, /\b(list|show|what)\b/i, /\b(capabilities|tools|plugins)\b/i);
  if (!asks) return undefined;
  if (tools.has('list_capabilities')) return { calls: [{ name: 'list_capabilities', input: {} }] };
  const names = [...tools.keys()].join(', ');
  return { text: names ? `I can use these tools: ${names}.` : 'I have no tools here.' };
};

/** Counts, for long or slow answers without a real model. */
export const count: Intent = ({ said }) => {
  const found = /\bcount( slowly)? to (\d+)\b/i.exec(said);
  if (!found) return undefined;
  const length = Math.min(Number(found[2]), COUNT_LIMIT);
  const text = Array.from({ length }, (_, i) => i + 1).join(' ');
  return found[1] ? { text, pauseMs: SLOW_PAUSE_MS } : { text };
};

/** Explains what this model is and how to configure a better one. */
export const introduce: Intent = ({ said, fileCount }) => {
  const quote = said.length > QUOTE_LENGTH ? `${said.slice(0, QUOTE_LENGTH)}…` : said;
  const files = fileCount > 0 ? ` I cannot read the ${fileCount} file(s) that came with it.` : '';
  const heard = quote ? `You said: “${quote}”.${files}\n\n` : '';
  return { text: `${heard}${INTRODUCTION}` };
};

const INTRODUCTION = [
  'I am the built-in offline model: a few rules, not a language model, made for the first five minutes and for tests.',
  'I can change your preferences ("answer in Spanish from now on"), use a tool you name ("use list_capabilities"), give the time and count.',
  'For real answers, the operator of this oracle sets OPENAI_API_KEY, ANTHROPIC_API_KEY or GOOGLE_GENERATIVE_AI_API_KEY, or MODEL=openai-compatible/<model-id> with MODEL_BASE_URL, and starts it again.',
].join(' ');
