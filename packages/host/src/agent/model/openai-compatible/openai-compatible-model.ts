import type { IncomingMessage } from 'node:http';
import type { ProviderAccess } from '../../../config/models-config.js';
import type { Model, ModelCall, ModelPart } from '../model.js';
import { ModelFault } from '../model-fault.js';
import { faultOfKind, faultOfRefusal } from '../provider-fault.js';
import { chatRequestOf } from './chat-request.js';
import { ChatStream } from './chat-stream.js';
import { postJson } from './post-json.js';
import { refusalOf } from './refusal.js';
import { SseReader } from './sse-reader.js';
import { WholeReader } from './whole-reader.js';

export interface OpenAiCompatibleOptions extends Omit<Model, 'stream'> {
  /** What the server calls the model. */
  readonly name: string;
  readonly access: ProviderAccess;
}

/** A model behind any server that speaks OpenAI's chat completions. */
export function createOpenAiCompatibleModel(options: OpenAiCompatibleOptions): Model {
  const { name, access, ...info } = options;
  const client = new ChatClient(info.id, name, access);
  return { ...info, stream: (call) => client.stream(call) };
}

interface Answer {
  readonly reply: IncomingMessage;
  /** Length of the request. */
  readonly sent: number;
}

class ChatClient {
  readonly #id: string;
  readonly #name: string;
  readonly #url: URL;
  readonly #headers: Record<string, string>;
  #asksUsage = true;

  constructor(id: string, name: string, { apiKey, baseUrl = '' }: ProviderAccess) {
    this.#id = id;
    this.#name = name;
    this.#url = new URL(baseUrl);
    this.#url.pathname = `${this.#url.pathname.replace(/\/+$/, '')}/chat/completions`;
    this.#headers = {
      'content-type': 'application/json',
      accept: 'text/event-stream, application/json',
      ...(apiKey && { authorization: `Bearer ${apiKey}` }),
    };
  }

  async *stream(call: ModelCall): AsyncGenerator<ModelPart> {
    call.signal.throwIfAborted();
    let answer: Answer | undefined;
    const stream = new ChatStream();
    try {
      answer = await this.#ask(call);
      yield* readParts(answer.reply, stream, call);
      yield* stream.end(this.#id, answer.sent);
    } catch (error) {
      call.signal.throwIfAborted();
      throw error instanceof ModelFault ? error : faultOfKind('network', String(error));
    } finally {
      if (!stream.isDone) answer?.reply.destroy();
    }
  }

  async #ask(call: ModelCall): Promise<Answer> {
    const options = { id: this.#id, name: this.#name, asksUsage: this.#asksUsage };
    const body = chatRequestOf(call, options);
    const { signal } = call;
    const reply = await postJson({ url: this.#url, headers: this.#headers, body, signal });
    if (reply.statusCode === 200) return { reply, sent: body.length };
    const refusal = await refusalOf(reply);
    if (this.#asksUsage && refusal.text.includes('stream_options')) {
      this.#asksUsage = false;
      return this.#ask(call);
    }
    throw faultOfRefusal(refusal);
  }
}

async function* readParts(
  reply: IncomingMessage,
  stream: ChatStream,
  call: ModelCall,
): AsyncGenerator<ModelPart> {
  const isWhole = reply.headers['content-type']?.includes('application/json');
  const reader = isWhole ? new WholeReader() : new SseReader();
  reply.setEncoding('utf8');
  for await (const text of reply.iterator({ destroyOnReturn: false })) {
    call.onActivity?.();
    for (const data of reader.push(text)) yield* stream.read(data);
    if (stream.isDone) {
      letEnd(reply);
      return;
    }
  }
  for (const data of reader.end()) yield* stream.read(data);
}

const PATIENCE_MS = 1000;

/** Lets a reply that has said all end by itself, so that its connection can be used again. */
function letEnd(reply: IncomingMessage): void {
  const timer = setTimeout(() => reply.destroy(), PATIENCE_MS).unref();
  reply.once('close', () => clearTimeout(timer));
  reply.resume();
}
