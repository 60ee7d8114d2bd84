import type { IncomingMessage } from 'node:http';
import { type SseEvent, SseParser } from '@sibyl/protocol/sse-parser';
import type { ModelPart } from '../model.js';
import { ChatStream } from './chat-stream.js';

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
