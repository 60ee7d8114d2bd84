import type {
  LanguageModelV4,
  LanguageModelV4CallOptions,
  LanguageModelV4FunctionTool,
  LanguageModelV4Message,
  LanguageModelV4StreamPart,
  LanguageModelV4ToolChoice,
  LanguageModelV4Usage,
  SharedV4ProviderMetadata,
  SharedV4ProviderOptions,
} from '@ai-sdk/provider';
import type { JsonObject } from '@sibyl/protocol';
import {
  createModelError,
  listUserParts,
  type Model,
  type ModelCall,
  ModelError,
  type ModelFinish,
  type ModelMessage,
  type ModelPart,
  type ModelTool,
  type ModelToolCall,
  type ModelToolResult,
  type ModelUsage,
  readRetryAfter,
  toModelError,
  toNetworkError,
  toObjectSchema,
  type UserPart,
} from './model.js';

export interface AiSdkModelOptions extends Omit<Model, 'stream'> {
  /** Loads the provider's package; called on first use. */
  readonly load: () => Promise<LanguageModelV4>;
  /** Options for a call with this effort of reasoning. */
  readonly optionsFor?: ((effort: Effort) => SdkOptions) | undefined;
}

/** `default` is as much as the model wants, undefined asks for nothing. */
export type Effort = ReturnType<Model['facts']['chooseEffort']>;
export type SdkOptions = Pick<LanguageModelV4CallOptions, 'providerOptions' | 'reasoning'>;

/** A model behind the AI SDK's provider interface. */
export function createAiSdkModel({ load, optionsFor, ...info }: AiSdkModelOptions): Model {
  let loading: Promise<LanguageModelV4> | undefined;
  const open = () => {
    loading ??= load();
    return loading;
  };
  return {
    ...info,
    async *stream(call) {
      const controller = new AbortController();
      const abort = () => controller.abort(call.signal.reason);
      call.signal.throwIfAborted();
      call.signal.addEventListener('abort', abort, { once: true });
      try {
        const options = {
          ...toCallOptions(call, info.id),
          ...toSettings(call, info),
          ...optionsFor?.(info.facts.chooseEffort(toReasoning(call, info))),
        };
        const model = await open();
        const { headers } = call;
        const sent = { ...options, ...(headers && { headers: { ...headers } }) };
        const { stream } = await model.doStream({ ...sent, abortSignal: controller.signal });
        yield* new StreamReader(info.id, call).read(stream);
      } catch (error) {
        call.signal.throwIfAborted();
        throw fromSdkError(error);
      } finally {
        call.signal.removeEventListener('abort', abort);
        // Stops the provider if the consumer stops early.
        controller.abort();
      }
    },
  };
}

type SdkFinish = Extract<LanguageModelV4StreamPart, { type: 'finish' }>;

/** Converts the SDK's stream parts to ours. */
class StreamReader {
  private readonly step = new StepRecorder();
  private readonly model: string;
  private readonly call: ModelCall;
  private finish: SdkFinish | undefined;

  constructor(model: string, call: ModelCall) {
    this.model = model;
    this.call = call;
  }

  async *read(stream: ReadableStream<LanguageModelV4StreamPart>): AsyncGenerator<ModelPart> {
    for await (const part of stream) {
      const ours = this.translate(part);
      if (ours) yield ours;
      else this.call.onActivity?.();
    }
    yield this.end();
  }

  private translate(part: LanguageModelV4StreamPart): ModelPart | undefined {
    switch (part.type) {
      case 'text-start':
      case 'reasoning-start':
        this.step.open(toPartType(part.type), part.id, part.providerMetadata);
        return undefined;
      case 'text-delta':
      case 'reasoning-delta': {
        const type = toPartType(part.type);
        this.step.add(type, part.id, part.delta, part.providerMetadata);
        return part.delta ? { type, text: part.delta } : undefined;
      }
      case 'text-end':
      case 'reasoning-end':
        this.step.add(toPartType(part.type), part.id, '', part.providerMetadata);
        return undefined;
      case 'tool-call':
        if (part.providerExecuted) return undefined;
        this.step.call(part.toolCallId, part.providerMetadata);
        return {
          type: 'tool-call',
          call: { id: part.toolCallId, name: part.toolName, input: part.input || '{}' },
        };
      case 'finish':
        this.finish = part;
        return undefined;
      case 'error':
        throw fromSdkError(part.error);
      default:
        // A turn does not show sources, files, metadata and parts of later versions.
        return undefined;
    }
  }

  private end(): ModelFinish {
    if (!this.finish) throw createModelError('network', 'the stream ended before the answer');
    return {
      type: 'finish',
      reason: toFinishReason(this.finish.finishReason),
      usage: toUsage(this.finish.usage),
      providerData: this.step.dataFor(this.model),
    };
  }
}

function toPartType(type: `${'text' | 'reasoning'}-${string}`): 'text' | 'reasoning' {
  return type.startsWith('text') ? 'text' : 'reasoning';
}

/** Converts the reason; throws if the answer is incomplete. */
function toFinishReason({ unified, raw }: SdkFinish['finishReason']): ModelFinish['reason'] {
  if (unified === 'interrupted') throw createModelError('network', 'the stream was interrupted');
  if (unified === 'error') throw createModelError('server', `the answer ended with ${raw}`);
  return unified;
}

function toUsage({ inputTokens, outputTokens }: LanguageModelV4Usage): ModelUsage {
  return {
    input: inputTokens.total ?? 0,
    output: outputTokens.total ?? 0,
    cached: inputTokens.cacheRead ?? 0,
  };
}

/** What the settings of the model and the message ask for. */
function toSettings(
  { responseSchema, tools, toolChoice }: ModelCall,
  { facts, provider }: Pick<Model, 'facts' | 'provider'>,
): Partial<LanguageModelV4CallOptions> {
  const { sampling, outputTokens } = facts.settings;
  // Not every provider accepts a schema together with tools.
  const isForced = facts.structuredOutput && (tools.length === 0 || provider === 'openai');
  return {
    ...(sampling as Partial<LanguageModelV4CallOptions>),
    ...(outputTokens && { maxOutputTokens: outputTokens }),
    ...(toolChoice && { toolChoice: toSdkChoice(toolChoice) }),
    ...(responseSchema &&
      isForced && { responseFormat: { type: 'json', schema: responseSchema, name: 'answer' } }),
  };
}

/** While they think, models of Anthropic cannot be forced to call a tool. */
function toReasoning(
  { reasoning, toolChoice }: ModelCall,
  { provider }: Pick<Model, 'provider'>,
): ModelCall['reasoning'] {
  return toolChoice && provider === 'anthropic' ? 'omit' : reasoning;
}

function toSdkChoice(choice: NonNullable<ModelCall['toolChoice']>): LanguageModelV4ToolChoice {
  return choice === 'required' ? { type: choice } : { type: 'tool', toolName: choice.tool };
}

/** Anthropic caches a prompt up to marked places; other providers ignore the mark. */
const CACHE_BREAKPOINT: SharedV4ProviderOptions = {
  anthropic: { cacheControl: { type: 'ephemeral' } },
};

/** Converts a call to the format of the AI SDK's providers. */
function toCallOptions(call: ModelCall, model: string): LanguageModelV4CallOptions {
  const system: LanguageModelV4Message[] = call.system
    ? [{ role: 'system', content: call.system, providerOptions: CACHE_BREAKPOINT }]
    : [];
  const asked = call.messages.findLastIndex(({ role }) => role === 'user');
  const toMessages = (message: ModelMessage) => toSdkMessages(message, model);
  const history = call.messages.slice(0, Math.max(0, asked)).flatMap(toMessages);
  const current = call.messages.slice(Math.max(0, asked)).flatMap(toMessages);
  const last = history.pop();
  if (last) history.push({ ...last, providerOptions: CACHE_BREAKPOINT });
  const tools = call.tools.map(toSdkTool);
  return { prompt: [...system, ...history, ...current], ...(tools.length > 0 && { tools }) };
}

function toSdkMessages(message: ModelMessage, model: string): LanguageModelV4Message[] {
  switch (message.role) {
    case 'user':
      return [{ role: 'user', content: listUserParts(message).map(toSdkPart) }];
    case 'assistant': {
      const calls = message.toolCalls ?? [];
      const content = replayContent(message.providerData, model, calls) ?? plainContent(message);
      return content.length > 0 ? [{ role: 'assistant', content }] : [];
    }
    case 'tool':
      return [{ role: 'tool', content: message.results.map(toSdkResult) }];
    default:
      return message satisfies never;
  }
}

function toSdkPart(part: UserPart) {
  return part.type === 'text'
    ? part
    : { ...part, data: { type: 'data' as const, data: part.data } };
}

/** Without the provider's record, reasoning is omitted: no provider accepts it unsigned. */
function plainContent({
  text,
  toolCalls = [],
}: Extract<ModelMessage, { role: 'assistant' }>): AssistantContent {
  return [...(text ? [{ type: 'text' as const, text }] : []), ...toolCalls.map(toolCallPart)];
}

function toSdkResult({ id, name, output, isError, media = [] }: ModelToolResult) {
  const text = { type: isError ? ('error-text' as const) : ('text' as const), value: output };
  const files = media.map((part) => toSdkPart({ type: 'file', ...part }));
  const content = {
    type: 'content' as const,
    value: [{ type: 'text' as const, text: output }, ...files],
  };
  return {
    type: 'tool-result' as const,
    toolCallId: id,
    toolName: name,
    output: files.length > 0 ? content : text,
  };
}

function toSdkTool({ name, description, inputSchema }: ModelTool): LanguageModelV4FunctionTool {
  return { type: 'function', name, description, inputSchema: toObjectSchema(inputSchema) };
}

type Metadata = SharedV4ProviderMetadata | undefined;
type AssistantContent = Extract<LanguageModelV4Message, { role: 'assistant' }>['content'];

interface Block {
  readonly type: 'text' | 'reasoning' | 'tool-call';
  /** The text, or the id of the tool call. */
  text: string;
  metadata?: Metadata;
}

/**
 * Records one step as its provider needs it back: the blocks in order, each with its metadata.
 * Anthropic signs its reasoning, OpenAI and Google encrypt theirs, and all three lose or reject a tool call
 * that is sent back without the blocks before it.
 */
class StepRecorder {
  private readonly blocks: Block[] = [];
  private readonly openBlocks = new Map<string, Block>();

  open(type: 'text' | 'reasoning', id: string, metadata: Metadata): void {
    const block: Block = { type, text: '' };
    this.blocks.push(block);
    this.openBlocks.set(`${type}:${id}`, block);
    this.add(type, id, '', metadata);
  }

  add(type: 'text' | 'reasoning', id: string, text: string, metadata: Metadata): void {
    const block = this.openBlocks.get(`${type}:${id}`);
    if (!block) return;
    block.text += text;
    if (metadata) block.metadata = metadata;
  }

  call(id: string, metadata: Metadata): void {
    this.blocks.push({ type: 'tool-call', text: id, metadata });
  }

  /** Returns data only for a step with tool calls: other steps are not replayed. */
  dataFor(model: string): JsonObject | undefined {
    const calls = this.blocks.some(({ type }) => type === 'tool-call');
    const matters = calls && this.blocks.some(({ metadata }) => metadata);
    return matters ? { model, blocks: this.blocks } : undefined;
  }
}

/** Converts the recorded step to prompt content; undefined if another model made it. */
function replayContent(
  data: JsonObject | undefined,
  model: string,
  calls: readonly ModelToolCall[],
): AssistantContent | undefined {
  if (data?.model !== model || !Array.isArray(data.blocks)) return undefined;
  return (data.blocks as Block[]).flatMap((block) => toSdkContent(block, calls));
}

function toSdkContent(
  { type, text, metadata }: Block,
  calls: readonly ModelToolCall[],
): AssistantContent {
  const options = metadata ? { providerOptions: metadata } : {};
  if (type !== 'tool-call') return text || metadata ? [{ type, text, ...options }] : [];
  const call = calls.find(({ id }) => id === text);
  return call ? [{ ...toolCallPart(call), ...options }] : [];
}

function toolCallPart({ id, name, input }: ModelToolCall) {
  return { type: 'tool-call' as const, toolCallId: id, toolName: name, input: parseInput(input) };
}

/** Providers accept only objects; other inputs were answered with an error. */
function parseInput(input: string): object {
  try {
    const value: unknown = JSON.parse(input);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}

/** The fields of the SDK's errors, thrown or streamed. There are several classes, so they are recognized by shape. */
interface SdkError {
  readonly name?: string;
  readonly message?: string;
  readonly type?: string;
  readonly code?: string | number;
  readonly statusCode?: number;
  readonly responseHeaders?: Record<string, string>;
  readonly responseBody?: string;
  readonly url?: string;
}

/** Converts anything that the SDK throws or streams as an error. */
function fromSdkError(error: unknown): ModelError {
  if (error instanceof ModelError) return error;
  const found: SdkError = typeof error === 'object' && error !== null ? error : {};
  const { name = '', message = String(error), statusCode = 0 } = found;
  if (statusCode >= 400) return toModelError(readProviderError(found, statusCode));
  if (name === 'AI_LoadAPIKeyError') return createModelError('auth', name);
  // A connection that breaks keeps the status of its reply.
  if (name === 'AI_APICallError') return toNetworkError(error, readHost(found));
  if (/JSONParse|TypeValidation|InvalidResponse|EmptyResponse/.test(name) || found.type)
    return createModelError('server', `${found.type ?? name}: ${message}`);
  return toModelError({ status: 0, text: message });
}

function readProviderError(error: SdkError, status: number) {
  const { message = '', type, code, responseHeaders = {}, responseBody = '' } = error;
  // The body contains codes that the message omits.
  const words = responseBody.matchAll(/"(?:code|type|reason)":\s*"([\w.-]{1,60})"/g);
  return {
    status,
    text: message,
    code: [type, code, ...[...words].map(([, word]) => word)].filter(Boolean).join(' '),
    body: responseBody,
    retryAfterSeconds: readRetryAfter(responseHeaders, responseBody),
    host: readHost(error),
  };
}

const readHost = ({ url = '' }: SdkError): string | undefined =>
  URL.canParse(url) ? new URL(url).hostname : undefined;
