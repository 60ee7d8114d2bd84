import type { ModelFinish, ModelPart, ModelUsage } from '../model.js';
import { faultOfKind, faultOfRefusal } from '../provider-fault.js';
import { ReasoningRecord } from './reasoning-record.js';
import { explanationIn } from './refusal.js';
import { ToolCallAssembly } from './tool-call-assembly.js';

type Fields = Record<string, unknown>;

/** Reads the events of one chat completion; no schema per event, for there are hundreds in an answer. */
export class ChatStream {
  readonly #reasoning = new ReasoningRecord();
  readonly #calls = new ToolCallAssembly();
  #reason: string | undefined;
  #isDone = false;
  #usage: ModelUsage | undefined;
  #written = 0;

  /** Whether the server said that nothing follows. */
  get isDone(): boolean {
    return this.#isDone;
  }

  read(data: string): readonly ModelPart[] {
    if (data.trim() === '[DONE]') {
      this.#isDone = true;
      return [];
    }
    const chunk = parsed(data);
    if (chunk.error) throw faultInStream(chunk);
    this.#usage = usageIn(chunk.usage) ?? this.#usage;
    const choice = first(chunk.choices);
    if (!choice) return [];
    if (typeof choice.finish_reason === 'string') this.#reason = choice.finish_reason;
    return this.#readDelta(fieldsOf(choice.delta ?? choice.message));
  }

  #readDelta(delta: Fields): ModelPart[] {
    const parts: ModelPart[] = [];
    const reasoning = this.#reasoning.read(delta);
    if (reasoning) parts.push({ type: 'reasoning', text: reasoning });
    const text = textIn(delta.content) || (typeof delta.refusal === 'string' ? delta.refusal : '');
    if (text) parts.push({ type: 'text', text });
    this.#written += text.length + reasoning.length;
    if (Array.isArray(delta.tool_calls))
      for (const piece of delta.tool_calls) this.#calls.add(piece);
    return parts;
  }

  /** The tool calls and the finish, once the stream is over; `sent` is the length of the request. */
  end(model: string, sent: number): ModelPart[] {
    if (!this.#isDone && this.#reason === undefined)
      throw faultOfKind('network', 'the stream ended before the answer');
    const calls = this.#calls.calls();
    for (const { input } of calls) this.#written += input.length;
    const hasCalls = calls.length > 0;
    const finish: ModelFinish = {
      type: 'finish',
      reason: reasonOf(this.#reason, hasCalls),
      usage: this.#usage ?? estimate(sent, this.#written),
      providerData: hasCalls ? this.#reasoning.dataFor(model) : undefined,
    };
    return [...calls.map((call) => ({ type: 'tool-call' as const, call })), finish];
  }
}

function parsed(data: string): Fields {
  try {
    return fieldsOf(JSON.parse(data));
  } catch {
    throw faultOfKind('server', 'an event of the stream is not JSON');
  }
}

function fieldsOf(value: unknown): Fields {
  return typeof value === 'object' && value !== null ? (value as Fields) : {};
}

function first(list: unknown): Fields | undefined {
  return Array.isArray(list) && list.length > 0 ? fieldsOf(list[0]) : undefined;
}

function textIn(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  const texts = content.map((part) => fieldsOf(part).text);
  return texts.filter((text) => typeof text === 'string').join('');
}

/** An error that comes after a status of 200; its code may be a status, or a word. */
function faultInStream(chunk: Fields): Error {
  const { text, code } = explanationIn(chunk);
  const status = Number(/\b[45]\d\d\b/.exec(code)?.[0] ?? statusOf(`${code} ${text}`));
  return faultOfRefusal({ status, text, code });
}

function statusOf(text: string): number {
  if (/rate.?limit|insufficient_quota|too many/i.test(text)) return 429;
  if (/invalid_request|context.?length/i.test(text)) return 400;
  if (/timed? ?out/i.test(text)) return 504;
  return 500;
}

function reasonOf(reason: string | undefined, hasCalls: boolean): ModelFinish['reason'] {
  switch (reason) {
    case 'length':
    case 'max_tokens':
      return 'length';
    case 'content_filter':
      return 'content-filter';
    default:
      // Several servers say "stop" although they call tools.
      return hasCalls ? 'tool-calls' : 'stop';
  }
}

function usageIn(usage: unknown): ModelUsage | undefined {
  const counts = fieldsOf(usage);
  if (typeof counts.prompt_tokens !== 'number') return undefined;
  const cached = fieldsOf(counts.prompt_tokens_details).cached_tokens;
  return {
    input: counts.prompt_tokens,
    output: Number(counts.completion_tokens ?? 0),
    cached: Number(cached ?? counts.prompt_cache_hit_tokens ?? 0),
  };
}

/** For servers that count nothing: four characters a token, so that no turn seems free. */
function estimate(sent: number, written: number): ModelUsage {
  return { input: Math.ceil(sent / 4), output: Math.ceil(written / 4), cached: 0 };
}
