import type { IncomingMessage } from 'node:http';
import type { ModelSettings } from '../../config/environment.js';
import type { ProviderAccess } from '../../config/models-config.js';
import {
  type Model,
  type ModelCall,
  ModelError,
  type ModelPart,
  toModelError,
  toNetworkError,
} from '../model.js';
import { ModelFacts } from '../model-facts.js';
import { buildChatRequest } from './chat-request.js';
import { readErrorReply } from './chat-stream.js';
import { buildHeaders, postJson, ReplyReader, toRouteUrl } from './http-client.js';
import { discoverDetails } from './server-details.js';

export interface OpenAiCompatibleOptions extends Omit<Model, 'stream' | 'facts'> {
  readonly settings?: ModelSettings;
  readonly defaults?: ModelSettings;
  /** The model's id on the server. */
  readonly name: string;
  readonly access: ProviderAccess;
}

/** Creates a model on any server that implements OpenAI's chat completions. */
export function createOpenAiCompatibleModel(options: OpenAiCompatibleOptions): Model {
  const { name, access, settings = {}, defaults = {}, ...info } = options;
  const server = {
    name,
    baseUrl: (access.baseUrl ?? '').replace(/\/+$/, ''),
    headers: buildHeaders(access),
  };
  const discover = (signal: AbortSignal) => discoverDetails(server, signal);
  const facts = new ModelFacts({ settings, defaults, discover });
  const client = new ChatClient({ id: info.id, name, access, facts });
  return { ...info, facts, stream: (call) => client.stream(call) };
}

interface OpenReply {
  readonly reply: IncomingMessage;
  readonly reader: ReplyReader;
  /** Length of the request. */
  readonly sent: number;
}

interface ChatClientOptions extends Pick<Model, 'id' | 'facts'> {
  readonly name: string;
  readonly access: ProviderAccess;
}

class ChatClient {
  private readonly id: string;
  private readonly name: string;
  private readonly key: string;
  private readonly url: URL;
  private readonly headers: Record<string, string>;
  private readonly facts: ModelFacts;
  private includesUsage = true;

  constructor({ id, name, access, facts }: ChatClientOptions) {
    this.facts = facts;
    const { apiKey = '', baseUrl = '' } = access;
    this.key = apiKey;
    this.id = id;
    this.name = name;
    this.url = toRouteUrl(baseUrl, '/chat/completions');
    this.headers = { ...buildHeaders(access), accept: 'text/event-stream, application/json' };
  }

  async *stream(call: ModelCall): AsyncGenerator<ModelPart> {
    call.signal.throwIfAborted();
    let answer: OpenReply | undefined;
    try {
      answer = await this.open(call);
      const { reply, reader, sent } = answer;
      for await (const text of reply.iterator({ destroyOnReturn: false })) {
        call.onActivity?.();
        for (const part of reader.push(text)) yield part;
        if (reader.isDone) break;
      }
      release(answer);
      for (const part of reader.end(this.id, sent)) yield part;
    } catch (error) {
      call.signal.throwIfAborted();
      throw error instanceof ModelError ? error : toNetworkError(error, this.url.hostname);
    } finally {
      release(answer);
    }
  }

  private async open(call: ModelCall): Promise<OpenReply> {
    const { id, name, facts, includesUsage } = this;
    const body = buildChatRequest(call, { id, name, facts, includesUsage });
    const { signal } = call;
    const headers = call.headers ? { ...call.headers, ...this.headers } : this.headers;
    const reply = await postJson({ url: this.url, headers, body, signal });
    reply.setEncoding('utf8');
    if (reply.statusCode === 200)
      return { reply, reader: new ReplyReader(reply), sent: body.length };
    const error = await readErrorReply(reply);
    // Concurrent calls are rejected together, and each is repeated.
    if (includesUsage && error.text.includes('stream_options')) {
      this.includesUsage = false;
      return this.open(call);
    }
    // Some servers repeat the key that they reject.
    const text = error.text.replaceAll(this.key || '\0', '…');
    throw toModelError({ ...error, text, host: this.url.hostname });
  }
}

const DRAIN_TIMEOUT_MS = 1000;

/** Closes the connection, unless the reply is complete: then it may end normally so that the connection is reused. */
function release(answer: OpenReply | undefined): void {
  if (!answer || answer.reply.readableEnded) return;
  const { reply, reader } = answer;
  if (!reader.isDone) {
    reply.destroy();
    return;
  }
  const timer = setTimeout(() => reply.destroy(), DRAIN_TIMEOUT_MS).unref();
  reply.once('close', () => clearTimeout(timer));
  reply.resume();
}
