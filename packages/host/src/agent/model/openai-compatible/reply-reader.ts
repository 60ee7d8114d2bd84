import type { IncomingMessage } from 'node:http';
import type { ModelPart } from '../model.js';
import { ChatStream } from './chat-stream.js';
import { SseReader } from './sse-reader.js';
import { WholeReader } from './whole-reader.js';

/** Turns the text of one reply into parts, as it arrives. */
export class ReplyReader {
  readonly #stream = new ChatStream();
  readonly #reader: SseReader | WholeReader;

  constructor(reply: IncomingMessage) {
    // Some servers answer in one piece although they were asked for a stream.
    const isWhole = reply.headers['content-type']?.includes('application/json');
    this.#reader = isWhole ? new WholeReader() : new SseReader();
  }

  /** Whether the server said that nothing follows. */
  get isDone(): boolean {
    return this.#stream.isDone;
  }

  push(text: string): Iterable<ModelPart> {
    return this.#read(this.#reader.push(text));
  }

  /** What is left at the end; `sent` is the length of the request. */
  *end(model: string, sent: number): Iterable<ModelPart> {
    if (!this.isDone) yield* this.#read(this.#reader.end());
    yield* this.#stream.end(model, sent);
  }

  /** Text that arrived together is passed on together, but before the fault that arrived with it. */
  *#read(events: readonly string[]): Iterable<ModelPart> {
    let held: ModelPart | undefined;
    try {
      for (const part of this.#partsOf(events)) {
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

  *#partsOf(events: readonly string[]): Iterable<ModelPart> {
    for (const event of events) yield* this.#stream.read(event);
  }
}

function join(last: ModelPart, next: ModelPart): ModelPart | undefined {
  if (last.type === 'text' && next.type === 'text')
    return { type: 'text', text: last.text + next.text };
  if (last.type === 'reasoning' && next.type === 'reasoning')
    return { type: 'reasoning', text: last.text + next.text };
  return undefined;
}
