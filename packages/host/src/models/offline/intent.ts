import type { ModelCall, ModelMessage, ModelTool, ModelToolResult, UserPart } from '../model.js';

/** The parts of a model call that the rules use. */
export interface OfflineRequest {
  readonly system: string;
  /** All texts of the conversation, oldest first. */
  readonly texts: readonly string[];
  /** The newest message of the user. */
  readonly said: string;
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
  return {
    system: call.system,
    texts: messages.map(getText).filter(Boolean),
    said: question ? getText(question).trim() : '',
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
      if (typeof message.content === 'string') return message.content;
      return filterParts(message.content, 'text')
        .map(({ text }) => text)
        .join('\n');
    case 'assistant':
      return message.text;
    case 'tool':
      return '';
    default:
      return message satisfies never;
  }
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
