import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import {
  createModelError,
  type ModelFinish,
  type ModelPart,
  type ModelToolCall,
  type ModelUsage,
  type ProviderError,
  readRetryAfter,
  toModelError,
} from '../model.js';
import { ReasoningRecord } from './chat-request.js';

type Fields = Record<string, unknown>;

/** Reads the events of one chat completion. Without schemas, because an answer has hundreds of events. */
export class ChatStream {
  private readonly reasoning = new ReasoningRecord();
  private readonly calls = new ToolCallAssembly();
  private reason: string | undefined;
  private hasEnded = false;
  private usage: ModelUsage | undefined;
  private written = 0;

  /** Whether the server has marked the end of its reply. */
  get isDone(): boolean {
    return this.hasEnded;
  }

  read(data: string): readonly ModelPart[] {
    if (data.trim() === '[DONE]') {
      this.hasEnded = true;
      return [];
    }
    const chunk = parseEvent(data);
    if (chunk.error) throw readStreamError(chunk);
    this.usage = readUsage(chunk.usage) ?? this.usage;
    const choice = readFirstChoice(chunk.choices);
    if (!choice) return [];
    if (typeof choice.finish_reason === 'string') this.reason = choice.finish_reason;
    return this.readDelta(asFields(choice.delta ?? choice.message));
  }

  private readDelta(delta: Fields): ModelPart[] {
    const parts: ModelPart[] = [];
    const reasoning = this.reasoning.read(delta);
    if (reasoning) parts.push({ type: 'reasoning', text: reasoning });
    const text =
      readText(delta.content) || (typeof delta.refusal === 'string' ? delta.refusal : '');
    if (text) parts.push({ type: 'text', text });
    this.written += text.length + reasoning.length;
    if (Array.isArray(delta.tool_calls))
      for (const piece of delta.tool_calls) this.calls.add(piece);
    return parts;
  }

  /** Returns the tool calls and the finish at the end of the stream; `sent` is the length of the request. */
  end(model: string, sent: number): ModelPart[] {
    if (!this.hasEnded && this.reason === undefined)
      throw createModelError('network', 'the stream ended before the answer');
    const calls = this.calls.calls();
    for (const { input } of calls) this.written += input.length;
    const hasCalls = calls.length > 0;
    const finish: ModelFinish = {
      type: 'finish',
      reason: toFinishReason(this.reason, hasCalls),
      usage: this.usage ?? estimateUsage(sent, this.written),
      providerData: hasCalls ? this.reasoning.dataFor(model) : undefined,
    };
    return [...calls.map((call) => ({ type: 'tool-call' as const, call })), finish];
  }
}

function parseEvent(data: string): Fields {
  try {
    return asFields(JSON.parse(data));
  } catch {
    throw createModelError('server', 'an event of the stream is not JSON');
  }
}

function asFields(value: unknown): Fields {
  return typeof value === 'object' && value !== null ? (value as Fields) : {};
}

function readFirstChoice(list: unknown): Fields | undefined {
  return Array.isArray(list) && list.length > 0 ? asFields(list[0]) : undefined;
}

function readText(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  const texts = content.map((part) => asFields(part).text);
  return texts.filter((text) => typeof text === 'string').join('');
}

/** Reads an error that arrives after status 200; its code may be a status or a word. */
function readStreamError(chunk: Fields): Error {
  const { text, code } = readExplanation(chunk);
  const status = Number(/\b[45]\d\d\b/.exec(code)?.[0] ?? guessStatus(`${code} ${text}`));
  return toModelError({ status, text, code, body: JSON.stringify(chunk) });
}

function guessStatus(text: string): number {
  if (/rate.?limit|insufficient_quota|too many/i.test(text)) return 429;
  if (/invalid_request|context.?length/i.test(text)) return 400;
  if (/timed? ?out/i.test(text)) return 504;
  return 500;
}

function toFinishReason(reason: string | undefined, hasCalls: boolean): ModelFinish['reason'] {
  switch (reason) {
    case 'length':
    case 'max_tokens':
      return 'length';
    case 'content_filter':
      return 'content-filter';
    default:
      // Several servers send "stop" although they call tools.
      return hasCalls ? 'tool-calls' : 'stop';
  }
}

function readUsage(usage: unknown): ModelUsage | undefined {
  const counts = asFields(usage);
  if (typeof counts.prompt_tokens !== 'number') return undefined;
  const cached = asFields(counts.prompt_tokens_details).cached_tokens;
  return {
    input: counts.prompt_tokens,
    output: Number(counts.completion_tokens ?? 0),
    cached: Number(cached ?? counts.prompt_cache_hit_tokens ?? 0),
  };
}

/** For servers that report no usage: four characters per token, so that no turn is free. */
function estimateUsage(sent: number, written: number): ModelUsage {
  return { input: Math.ceil(sent / 4), output: Math.ceil(written / 4), cached: 0 };
}

/** The most characters of the tool calls of one answer, which are in memory until they are complete. */
const MAX_CHARACTERS = 8 * 1024 * 1024;
/** Overhead of a call. */
const CALL_CHARACTERS = 10_000;

interface Draft {
  id: string;
  name: string;
  input: string;
  readonly index: unknown;
}

interface Piece {
  readonly index: unknown;
  readonly id: unknown;
  readonly name: unknown;
}

/** Assembles tool calls from their pieces, even if the server omits fields. */
export class ToolCallAssembly {
  private readonly drafts: Draft[] = [];
  private characters = 0;

  add(piece: unknown): void {
    if (typeof piece !== 'object' || piece === null) return;
    const { index, id, function: called = {} } = piece as Record<string, unknown>;
    const { name, arguments: input } = (called ?? {}) as Record<string, unknown>;
    const before = this.drafts.length;
    const draft = this.findDraft({ index, id, name });
    if (this.drafts.length > before) this.count(CALL_CHARACTERS);
    draft.name ||= asText(name);
    if (typeof input === 'string') draft.input += input;
    else if (typeof input === 'object' && input !== null) draft.input = JSON.stringify(input);
    this.count(typeof input === 'string' ? input.length : draft.input.length);
  }

  private count(characters: number): void {
    this.characters += characters;
    if (this.characters > MAX_CHARACTERS)
      throw createModelError('server', 'the tool calls of the answer are too long');
  }

  calls(): ModelToolCall[] {
    const named = this.drafts.filter(({ name }) => name);
    return named.map(({ id, name, input }) => ({
      id: id || `call_${randomUUID()}`,
      name,
      input: input.trim() || '{}',
    }));
  }

  private findDraft({ index, id, name }: Piece): Draft {
    const found = this.drafts.findLast((draft) => index === undefined || draft.index === index);
    if (found && !startsNewCall(found, { index, id, name })) {
      found.id ||= asText(id);
      return found;
    }
    const draft = { id: asText(id), name: '', input: '', index };
    this.drafts.push(draft);
    return draft;
  }
}

/** Some servers number every call 0 or send no numbers: then a new id or a second name starts a new call. */
function startsNewCall(draft: Draft, { index, id, name }: Piece): boolean {
  if (asText(id) && draft.id) return id !== draft.id;
  return index === undefined && draft.name !== '' && asText(name) !== '';
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

const LONGEST_BODY = 64 * 1024;

/** Reads the error reply of a server in any of the common formats. */
export async function readErrorReply(reply: IncomingMessage): Promise<ProviderError> {
  const body = await readBody(reply);
  return {
    status: reply.statusCode ?? 0,
    ...readExplanation(parseErrorBody(body)),
    body,
    retryAfterSeconds: readRetryAfter(reply.headers, body),
  };
}

async function readBody(reply: IncomingMessage): Promise<string> {
  let body = '';
  for await (const text of reply) {
    body += text;
    if (body.length > LONGEST_BODY) break;
  }
  return body;
}

function parseErrorBody(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    // An HTML page, perhaps of a proxy.
    return {};
  }
}

/** Reads the error of a body or an event: `{error: {message, type, code}}`, `{error}`, `{message}`, `{detail}`. */
function readExplanation(value: unknown): { text: string; code: string } {
  const fields = asFields(value);
  const error = fields.error ?? fields.message ?? fields.detail ?? '';
  const { message, type, code } = asFields(error);
  const text = typeof error === 'string' ? error : message;
  return {
    text: typeof text === 'string' ? text : '',
    code: [type, code].filter((word) => word !== undefined && word !== null).join(' '),
  };
}
