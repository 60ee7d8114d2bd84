import type { LanguageModelV4Message, SharedV4ProviderMetadata } from '@ai-sdk/provider';
import type { JsonObject } from '@sibyl/protocol';
import type { ModelToolCall } from '../model.js';

type Metadata = SharedV4ProviderMetadata | undefined;
export type AssistantContent = Extract<LanguageModelV4Message, { role: 'assistant' }>['content'];

interface Block {
  readonly type: 'text' | 'reasoning' | 'tool-call';
  /** The text, or the id of the tool call. */
  text: string;
  metadata?: Metadata;
}

/**
 * Keeps one step as its provider wants it back: the blocks in order, each with its metadata.
 * Anthropic signs its thinking, OpenAI and Google hand theirs out sealed, and all three lose
 * or refuse a tool call that comes back without what preceded it.
 */
export class StepRecorder {
  readonly #blocks: Block[] = [];
  readonly #open = new Map<string, Block>();

  open(type: 'text' | 'reasoning', id: string, metadata: Metadata): void {
    const block: Block = { type, text: '' };
    this.#blocks.push(block);
    this.#open.set(`${type}:${id}`, block);
    this.add(type, id, '', metadata);
  }

  add(type: 'text' | 'reasoning', id: string, text: string, metadata: Metadata): void {
    const block = this.#open.get(`${type}:${id}`);
    if (!block) return;
    block.text += text;
    if (metadata) block.metadata = metadata;
  }

  call(id: string, metadata: Metadata): void {
    this.#blocks.push({ type: 'tool-call', text: id, metadata });
  }

  /** Only a step that goes on after its tools needs replaying. */
  dataFor(model: string): JsonObject | undefined {
    const calls = this.#blocks.some(({ type }) => type === 'tool-call');
    const matters = calls && this.#blocks.some(({ metadata }) => metadata);
    return matters ? { model, blocks: this.#blocks } : undefined;
  }
}

/** The recorded step as prompt content; undefined if another model made it. */
export function replayedContent(
  data: JsonObject | undefined,
  model: string,
  calls: readonly ModelToolCall[],
): AssistantContent | undefined {
  if (data?.model !== model || !Array.isArray(data.blocks)) return undefined;
  return (data.blocks as Block[]).flatMap((block) => contentOf(block, calls));
}

function contentOf(
  { type, text, metadata }: Block,
  calls: readonly ModelToolCall[],
): AssistantContent {
  const options = metadata ? { providerOptions: metadata } : {};
  if (type !== 'tool-call') return text || metadata ? [{ type, text, ...options }] : [];
  const call = calls.find(({ id }) => id === text);
  return call ? [{ ...toolCallPart(call), ...options }] : [];
}

export function toolCallPart({ id, name, input }: ModelToolCall) {
  return { type: 'tool-call' as const, toolCallId: id, toolName: name, input: parsed(input) };
}

/** Providers take only objects; what else a model wrote has had its error as the result. */
function parsed(input: string): object {
  try {
    const value: unknown = JSON.parse(input);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}
