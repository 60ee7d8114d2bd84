import type { IncomingMessage } from 'node:http';
import type { ModelPart } from '../model.js';
import { ChatStream } from './chat-stream.js';

/** Turns the text of one reply into parts, as it arrives. */
export class ReplyReader {
  private readonly stream = new ChatStream();
  private readonly reader: SseReader | WholeReader;

  constructor(reply: IncomingMessage) {
    // Some servers answer in one piece although they were asked for a stream.
    const isWhole = reply.headers['content-type']?.includes('application/json');
    this.reader = isWhole ? new WholeReader() : new SseReader();
  }

  /** Whether the server said that nothing follows. */
  get isDone(): boolean {
    return this.stream.isDone;
  }

  push(text: string): Iterable<ModelPart> {
    return this.read(this.reader.push(text));
  }

  /** What is left at the end; `sent` is the length of the request. */
  *end(model: string, sent: number): Iterable<ModelPart> {
    if (!this.isDone) yield* this.read(this.reader.end());
    yield* this.stream.end(model, sent);
  }

  /** Text that arrived together is passed on together, but before the fault that arrived with it. */
  private *read(events: readonly string[]): Iterable<ModelPart> {
    let held: ModelPart | undefined;
    try {
      for (const part of this.partsOf(events)) {
        const joined = held && join(held, part);
        if (held && !joined) yield held;
        held = joined ?? part;
      }
    } catch (fault) {
      if (held) yield held;
      throw fault;
    }
    if (held) yield held;
  }

  private *partsOf(events: readonly string[]): Iterable<ModelPart> {
    for (const event of events) yield* this.stream.read(event);
  }
}

function join(last: ModelPart, next: ModelPart): ModelPart | undefined {
  if (last.type === 'text' && next.type === 'text')
    return { type: 'text', text: last.text + next.text };
  if (last.type === 'reasoning' && next.type === 'reasoning')
    return { type: 'reasoning', text: last.text + next.text };
  return undefined;
}

const LONGEST_LINE = 8 * 1024 * 1024;

/** Cuts a text/event-stream into the data of its events, however the bytes arrive. */
export class SseReader {
  private rest = '';
  private data: string | undefined;
  private hasBegun = false;

  /** The data of every event that `text` completes. */
  push(text: string): string[] {
    const events: string[] = [];
    const buffer = this.rest + this.withoutMark(text);
    let start = 0;
    for (let end = buffer.indexOf('\n'); end >= 0; end = buffer.indexOf('\n', start)) {
      const line = buffer.slice(start, buffer[end - 1] === '\r' ? end - 1 : end);
      start = end + 1;
      this.take(line, events);
    }
    this.rest = buffer.slice(start);
    if (this.rest.length > LONGEST_LINE) throw new Error('a line of the stream never ends');
    return events;
  }

  /** What a server left without the empty line that ends an event. */
  end(): string[] {
    const events: string[] = [];
    this.take(this.rest, events);
    this.take('', events);
    return events;
  }

  private take(line: string, events: string[]): void {
    if (line === '') {
      if (this.data !== undefined) events.push(this.data);
      this.data = undefined;
      return;
    }
    // Comments, event names and ids say nothing that the data does not.
    if (!line.startsWith('data:')) return;
    const value = line.slice(line[5] === ' ' ? 6 : 5);
    this.data = this.data === undefined ? value : `${this.data}\n${value}`;
  }

  private withoutMark(text: string): string {
    if (this.hasBegun) return text;
    this.hasBegun = text.length > 0;
    return text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
  }
}

const MAX_CHARACTERS = 8 * 1024 * 1024;

/** Collects a reply that came in one piece although a stream was asked for. */
export class WholeReader {
  private body = '';

  push(text: string): string[] {
    this.body += text;
    if (this.body.length > MAX_CHARACTERS) throw new Error('the reply never ends');
    return [];
  }

  end(): string[] {
    return [this.body];
  }
}
