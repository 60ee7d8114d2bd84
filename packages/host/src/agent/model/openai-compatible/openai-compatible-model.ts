import type { IncomingMessage } from 'node:http';
import type { ProviderAccess } from '../../../config/models-config.js';
import type { Model, ModelCall, ModelPart } from '../model.js';
import { ModelFault } from '../model-fault.js';
import { faultOfKind, faultOfRefusal } from '../provider-fault.js';
import { chatRequestOf } from './chat-request.js';
import { postJson } from './post-json.js';
import { refusalOf } from './refusal.js';
import { ReplyReader } from './reply-reader.js';

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
  readonly reader: ReplyReader;
  /** Length of the request. */
  readonly sent: number;
}

class ChatClient {
  readonly #id: string;
  readonly #name: string;
  readonly #key: string;
  readonly #url: URL;
  readonly #headers: Record<string, string>;
  #asksUsage = true;

  constructor(id: string, name: string, { apiKey = '', baseUrl = '' }: ProviderAccess) {
    this.#key = apiKey;
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
    try {
      answer = await this.#ask(call);
      const { reply, reader, sent } = answer;
      for await (const text of reply.iterator({ destroyOnReturn: false })) {
        call.onActivity?.();
        for (const part of reader.push(text)) yield part;
        if (reader.isDone) break;
      }
      leave(answer);
      for (const part of reader.end(this.#id, sent)) yield part;
    } catch (error) {
      call.signal.throwIfAborted();
      throw error instanceof ModelFault ? error : faultOfKind('network', String(error));
    } finally {
      leave(answer);
    }
  }

  async #ask(call: ModelCall): Promise<Answer> {
    const asksUsage = this.#asksUsage;
    const body = chatRequestOf(call, { id: this.#id, name: this.#name, asksUsage });
    const { signal } = call;
    const reply = await postJson({ url: this.#url, headers: this.#headers, body, signal });
    reply.setEncoding('utf8');
    if (reply.statusCode === 200)
      return { reply, reader: new ReplyReader(reply), sent: body.length };
    const refusal = await refusalOf(reply);
    // Calls made at the same time are refused together, and each is made again.
    if (asksUsage && refusal.text.includes('stream_options')) {
      this.#asksUsage = false;
      return this.#ask(call);
    }
    // Some servers repeat the key they refuse.
    throw faultOfRefusal({ ...refusal, text: refusal.text.replaceAll(this.#key || '\0', '…') });
  }
}

const PATIENCE_MS = 1000;

/** Ends the connection, unless all is said: then the reply may end by itself and the connection serve again. */
function leave(answer: Answer | undefined): void {
  if (!answer || answer.reply.readableEnded) return;
  const { reply, reader } = answer;
  if (!reader.isDone) {
    reply.destroy();
    return;
  }
  const timer = setTimeout(() => reply.destroy(), PATIENCE_MS).unref();
  reply.once('close', () => clearTimeout(timer));
  reply.resume();
}
