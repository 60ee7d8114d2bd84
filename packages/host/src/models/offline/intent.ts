import type { ModelCall, ModelMessage, ModelTool, ModelToolResult, UserPart } from '../model.js';

/** A model call, boiled down to what the rules look at. */
export interface OfflineRequest {
  readonly system: string;
  /** Every text of the conversation, oldest first. */
  readonly texts: readonly string[];
  /** The newest message of the user. */
  readonly said: string;
  readonly fileCount: number;
  /** How often tools have answered since then. */
  readonly step: number;
  /** What they answered last, if that is the newest of all. */
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
  /** Waits this long between words. */
  readonly pauseMs?: number;
}

/** One rule: the reply, if the request is of its kind. */
export type Intent = (request: OfflineRequest) => OfflineReply | undefined;

/** Boils a call down to what the rules look at. */
export function readRequest(call: ModelCall, now: Date): OfflineRequest {
  const { messages } = call;
  const asked = messages.findLastIndex(({ role }) => role === 'user');
  const question = messages[asked];
  const last = messages.at(-1);
  return {
    system: call.system,
    texts: messages.map(getText).filter(Boolean),
    said: question ? getText(question).trim() : '',
    fileCount: question?.role === 'user' ? filterParts(question.content, 'file').length : 0,
    step: messages.slice(asked + 1).filter(({ role }) => role === 'tool').length,
    results: last?.role === 'tool' ? last.results : [],
    tools: new Map(call.tools.map((tool) => [tool.name, tool])),
    now,
  };
}

/** What a message says, tool results left out. */
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

/** A text without these characters at its end; a pattern would try from every one of them. */
export function withoutEnd(text: string, characters: string): string {
  let end = text.length;
  while (end > 0 && characters.includes(text.charAt(end - 1))) end -= 1;
  return text.slice(0, end);
}
