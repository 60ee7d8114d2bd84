import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { type SseEvent, SseParser } from '@sibyl/protocol/sse-parser';
import type { ProviderAccess } from '../../config/models-config.js';
import type { ModelPart } from '../model.js';
import { ChatStream } from './chat-stream.js';

// Connections are reused: a turn with tools calls the same server several times.
const options = { keepAlive: true, maxFreeSockets: 64, timeout: 60_000 };
const http = { agent: new HttpAgent(options), request: httpRequest };
/** Created on first use: TLS reads all certificates when it is loaded. */
let https: { readonly agent: HttpsAgent; readonly request: typeof httpsRequest } | undefined;

export interface JsonRequest {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

export interface JsonPost extends JsonRequest {
  readonly body: string;
}

/** The address of a route of a server; `baseUrl` may end with a slash. */
export function toRouteUrl(baseUrl: string, path: string): URL {
  const url = new URL(baseUrl);
  url.pathname = url.pathname.replace(/\/+$/, '') + path;
  return url;
}

export function buildHeaders({ apiKey }: Pick<ProviderAccess, 'apiKey'>): Record<string, string> {
  return {
    'content-type': 'application/json',
    accept: 'application/json',
    ...(apiKey && { authorization: `Bearer ${apiKey}` }),
  };
}

/** Posts JSON and returns the reply as soon as its headers have arrived. */
export const postJson = (post: JsonPost): Promise<IncomingMessage> => send('POST', post);

/** Lists of models are long: some servers offer hundreds. */
const MAX_CHARACTERS = 8 * 1024 * 1024;

/** Reads the JSON of a reply; undefined if the server has none. */
export async function fetchJson(
  request: JsonRequest & { readonly body?: string },
): Promise<unknown> {
  const reply = await send(request.body === undefined ? 'GET' : 'POST', request);
  reply.setEncoding('utf8');
  let text = '';
  for await (const piece of reply) {
    text += piece;
    if (text.length > MAX_CHARACTERS) return undefined;
  }
  if (reply.statusCode !== 200) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function useHttps() {
  https ??= { agent: new HttpsAgent(options), request: httpsRequest };
  return https;
}

function send(
  method: 'GET' | 'POST',
  sending: JsonRequest & { readonly body?: string },
): Promise<IncomingMessage> {
  const { url, headers, body, signal } = sending;
  const { agent, request } = url.protocol === 'https:' ? useHttps() : http;
  return new Promise((resolve, reject) => {
    let hasReply = false;
    const sent = request(url, { method, agent, headers, signal }, (reply) => {
      hasReply = true;
      resolve(reply);
    });
    sent.on('error', (error: NodeJS.ErrnoException) => {
      // The server closed an idle connection just when it was reused: tries again.
      const wasStale = sent.reusedSocket && error.code === 'ECONNRESET' && !hasReply;
      if (wasStale) resolve(send(method, sending));
      else reject(error);
    });
    sent.end(body);
  });
}

/** Characters of a reply that is not a stream. */
const MAX_BODY_LENGTH = 8 * 1024 * 1024;

/** Converts the text of one reply to parts as it arrives. */
export class ReplyReader {
  private readonly stream = new ChatStream();
  /** Undefined if the server sends one JSON document although it was asked for a stream. */
  private readonly events: SseParser | undefined;
  private body = '';

  constructor({ headers }: Pick<IncomingMessage, 'headers'>) {
    const isJson = headers['content-type']?.includes('application/json');
    this.events = isJson ? undefined : new SseParser();
  }

  /** Whether the server has marked the end of its reply. */
  get isDone(): boolean {
    return this.stream.isDone;
  }

  push(text: string): Iterable<ModelPart> {
    if (this.events) return this.read(this.events.push(text));
    this.body += text;
    if (this.body.length > MAX_BODY_LENGTH)
      throw new Error(`the reply exceeds ${MAX_BODY_LENGTH} characters`);
    return [];
  }

  /** Returns the remaining parts; `sent` is the length of the request. */
  *end(model: string, sent: number): Iterable<ModelPart> {
    if (!this.isDone) yield* this.read(this.events?.flush() ?? [{ data: this.body }]);
    yield* this.stream.end(model, sent);
  }

  /** Merges text that arrived together, and yields it before an error that arrived with it. */
  private *read(events: readonly Pick<SseEvent, 'data'>[]): Iterable<ModelPart> {
    let pending: ModelPart | undefined;
    try {
      for (const part of this.readEvents(events)) {
        const merged = pending && mergeParts(pending, part);
        if (pending && !merged) yield pending;
        pending = merged ?? part;
      }
    } catch (error) {
      if (pending) yield pending;
      throw error;
    }
    if (pending) yield pending;
  }

  private *readEvents(events: readonly Pick<SseEvent, 'data'>[]): Iterable<ModelPart> {
    for (const { data } of events) yield* this.stream.read(data);
  }
}

function mergeParts(last: ModelPart, next: ModelPart): ModelPart | undefined {
  if (last.type === 'text' && next.type === 'text')
    return { type: 'text', text: last.text + next.text };
  if (last.type === 'reasoning' && next.type === 'reasoning')
    return { type: 'reasoning', text: last.text + next.text };
  return undefined;
}
