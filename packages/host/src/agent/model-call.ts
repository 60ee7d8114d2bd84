import type { Llms } from '@sibyl/plugin-kit';
import type { ModelRole } from '@sibyl/plugin-kit/host';
import type { Attachment } from '@sibyl/protocol';
import { abortableIterable } from '@sibyl/server-kit';
import {
  type MediaPart,
  type Model,
  type ModelCall,
  ModelError,
  type ModelFinish,
  type ModelMessage,
  type ModelPart,
  type ModelTool,
  type ModelToolCall,
  type ModelUsage,
  type ModelUse,
  type UserPart,
} from '../models/model.js';
import { type AgentPart, type Meter, warning } from './agent.js';
import { PARAGRAPH } from './conversation.js';
import type { ParsedCall } from './run-tools.js';
import type { AssistantMessage } from './steps.js';

type UserMessage = Extract<ModelMessage, { role: 'user' }>;

/** One model call, collected while it streams. */
export class Step {
  readonly calls: ModelToolCall[] = [];
  /** What the model has said. */
  text = '';
  private reasoning = '';
  private ending: ModelFinish | undefined;
  private answeredBy: Pick<Model, 'id' | 'facts'> | undefined;

  /** `before` is the previous step, if it had output. */
  constructor(private readonly before: Step | undefined) {}

  /** Whether the turn has produced text until the end of this step. */
  get hasOutput(): boolean {
    return this.text !== '' || this.before !== undefined;
  }

  /** Collects a part; returns the part that the user sees, if any. */
  take(part: ModelPart): AgentPart | undefined {
    switch (part.type) {
      case 'text':
        // A text after another step begins a paragraph.
        if (this.text === '' && this.before) {
          this.text = part.text;
          return { type: 'text', text: PARAGRAPH + part.text };
        }
        this.text += part.text;
        return part;
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
    return this.text === '' && this.reasoning === '' && this.calls.length === 0;
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
      text: this.text,
      ...(this.reasoning !== '' && { reasoning: this.reasoning }),
      toolCalls: calls.map(({ id, name, args }) => ({ id, name, input: JSON.stringify(args) })),
      ...(providerData !== undefined && { providerData }),
    };
  }

  /** A call that failed without output costs nothing; one that the user stopped has been charged. */
  private estimate(call: ModelCall): ModelUsage {
    const texts = [this.text, this.reasoning, ...this.calls.map(({ input }) => input)];
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

/** A prompt outside of any conversation. */
export interface TextRequest {
  readonly model: Model;
  readonly system: string;
  readonly prompt: string;
  readonly meter: Meter;
  readonly signal: AbortSignal;
  /** Stops reading after this many characters. */
  readonly maxLength?: number | undefined;
}

/** Returns the complete answer of a model; its cost is metered even if the call fails. */
export async function generateText(
  question: TextRequest,
): Promise<{ readonly text: string; readonly use: ModelUse }> {
  const { model, system, prompt, meter, signal, maxLength = Number.POSITIVE_INFINITY } = question;
  await meter.check();
  const call = {
    system,
    messages: [{ role: 'user' as const, content: prompt }],
    tools: [],
    // Titles and summaries are not worth it.
    reasoning: 'omit' as const,
    signal,
  };
  const step = new Step(undefined);
  try {
    for await (const part of abortableIterable(model.stream(call), signal)) {
      step.take(part);
      if (step.text.length > maxLength) break;
    }
    if (step.text.length <= maxLength) step.assertWhole();
  } finally {
    meter.add(step.countUse(model, call));
  }
  return { text: step.text, use: step.countUse(model, call) };
}

interface LlmsDeps {
  readonly modelFor: (role: ModelRole) => Model;
  readonly meter: Meter;
  /** Aborts every call. */
  readonly signal: AbortSignal;
}

/** Gives plugins access to models outside of the conversation. */
export function createLlms({ modelFor, meter, signal: ending }: LlmsDeps): Llms {
  return {
    get: (role) => ({
      generate: async ({ system = '', prompt, signal }) => {
        const both = signal ? AbortSignal.any([signal, ending]) : ending;
        return generateText({ model: modelFor(role), system, prompt, meter, signal: both });
      },
    }),
  };
}

const BYTES_PER_TOKEN = 4;
const MESSAGE_OVERHEAD = 4;
/** Names, ids and the JSON around them. */
const CALL_OVERHEAD = 20;
const IMAGE_TOKENS = 1500;
const DOCUMENT_BYTES_PER_TOKEN = 20;

/** Estimates the tokens of a text by bytes, because other scripts need more tokens per character. */
export function estimateTokens(text: string): number {
  return Math.ceil(Buffer.byteLength(text) / BYTES_PER_TOKEN);
}

// Messages and schemas never change, and a turn estimates the same ones before every step.
const knownMessages = new WeakMap<ModelMessage, number>();
const knownSchemas = new WeakMap<object, number>();

export function estimateMessages(messages: readonly ModelMessage[]): number {
  let tokens = 0;
  for (const message of messages) {
    let known = knownMessages.get(message);
    if (known === undefined) {
      known = MESSAGE_OVERHEAD + estimateContent(message);
      knownMessages.set(message, known);
    }
    tokens += known;
  }
  return tokens;
}

function estimateContent(message: ModelMessage): number {
  switch (message.role) {
    case 'user':
      return estimateTokens(message.note ?? '') + estimateUserContent(message);
    case 'assistant': {
      let tokens = estimateTokens(message.text) + estimateTokens(message.reasoning ?? '');
      for (const { input } of message.toolCalls ?? [])
        tokens += CALL_OVERHEAD + estimateTokens(input);
      return tokens;
    }
    case 'tool': {
      let tokens = 0;
      for (const { output, media = [] } of message.results)
        tokens += CALL_OVERHEAD + estimateTokens(output) + estimateParts(media);
      return tokens;
    }
    default:
      return message satisfies never;
  }
}

function estimateUserContent({ content, attachments }: UserMessage): number {
  if (typeof content !== 'string') return estimateParts(content);
  return estimateTokens(content) + (attachments ? estimateAttachments(attachments) : 0);
}

const ATTACHMENT_BYTES = { unknown: 8_000, max: 60_000 };

/** Reserves space for the files of a message that a middleware adds later. */
function estimateAttachments(attachments: readonly Attachment[]): number {
  let tokens = 0;
  for (const { mimetype, size = ATTACHMENT_BYTES.unknown } of attachments)
    tokens += mimetype.startsWith('image/')
      ? IMAGE_TOKENS
      : Math.ceil(Math.min(size, ATTACHMENT_BYTES.max) / BYTES_PER_TOKEN);
  return tokens;
}

function estimateParts(parts: readonly (UserPart | MediaPart)[]): number {
  let tokens = 0;
  for (const part of parts)
    tokens += 'text' in part ? estimateTokens(part.text) : estimateFile(part);
  return tokens;
}

function estimateFile({ mediaType, data }: MediaPart): number {
  if (mediaType.startsWith('text/')) return Math.ceil(data.byteLength / BYTES_PER_TOKEN);
  if (mediaType.startsWith('image/')) return IMAGE_TOKENS;
  return Math.max(IMAGE_TOKENS, Math.ceil(data.byteLength / DOCUMENT_BYTES_PER_TOKEN));
}

export function estimateTools(tools: readonly ModelTool[]): number {
  let tokens = 0;
  for (const { name, description, inputSchema } of tools) {
    let schema = knownSchemas.get(inputSchema);
    if (schema === undefined) {
      schema = estimateTokens(JSON.stringify(inputSchema));
      knownSchemas.set(inputSchema, schema);
    }
    tokens += MESSAGE_OVERHEAD + estimateTokens(name) + estimateTokens(description) + schema;
  }
  return tokens;
}

/** Estimates the tokens that a call sends. */
export function estimateCall({ system, messages, tools }: ModelCall): number {
  return estimateTokens(system) + estimateMessages(messages) + estimateTools(tools);
}

/** Whether a call sends files, whose tokens depend on the model. */
export function hasFiles({ messages }: ModelCall): boolean {
  for (const message of messages) {
    if (message.role === 'tool' && message.results.some(({ media }) => media?.length)) return true;
    if (message.role !== 'user' || typeof message.content === 'string') continue;
    if (message.content.some(({ type }) => type === 'file')) return true;
  }
  return false;
}

/** Returns the beginning of a text, about `tokens` long. */
export function keepStart(text: string, tokens: number): string {
  return text.slice(0, charactersWithin(text, tokens)).toWellFormed();
}

/** Returns the end of a text, about `tokens` long. */
export function keepEnd(text: string, tokens: number): string {
  return text.slice(text.length - charactersWithin(text, tokens)).toWellFormed();
}

function charactersWithin(text: string, tokens: number): number {
  const whole = estimateTokens(text);
  return whole <= tokens ? text.length : Math.floor((text.length * tokens) / whole);
}
