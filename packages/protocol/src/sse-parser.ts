/** One server-sent event. */
export interface SseEvent {
  /** Empty if the event has no name. */
  readonly event: string;
  /** The last id of the stream; empty if there was none. */
  readonly id: string;
  readonly data: string;
}

export interface SseParserOptions {
  /** The most characters that one event may have, and one line of it. */
  readonly maxEventLength?: number;
}

const MAX_EVENT_LENGTH = 8 * 1024 * 1024;
const BYTE_ORDER_MARK = '\uFEFF';
const LINE_END = /\r\n|\n|\r/;

/**
 * Parses a `text/event-stream` that arrives in chunks, split anywhere. Accepts all three line endings and a
 * byte order mark. Throws if an event exceeds the limit, so that a stream without line ends fills no memory.
 */
export class SseParser {
  private readonly maxEventLength: number;
  /** The start of a line whose end has not arrived. */
  private rest = '';
  private event = '';
  private id = '';
  private data: string | undefined;
  private hasStarted = false;
  private endedInCarriageReturn = false;

  constructor({ maxEventLength = MAX_EVENT_LENGTH }: SseParserOptions = {}) {
    this.maxEventLength = maxEventLength;
  }

  /** Returns the events that this chunk completes. */
  push(chunk: string): SseEvent[] {
    const events: SseEvent[] = [];
    if (chunk === '') return events;
    // Only the new chunk is split: joining it to a long unfinished line first would take quadratic time.
    const text = this.trimStart(chunk);
    const lines = text.includes('\r') ? text.split(LINE_END) : text.split('\n');
    const last = lines.pop() ?? '';
    for (const line of lines) {
      this.readLine(this.rest + line, events);
      this.rest = '';
    }
    this.rest += last;
    this.checkLength(this.rest.length);
    return events;
  }

  /** Returns the last event of a stream that ended without the empty line after it. */
  flush(): SseEvent[] {
    const events: SseEvent[] = [];
    if (this.rest !== '') this.readLine(this.rest, events);
    this.rest = '';
    this.readLine('', events);
    return events;
  }

  /** Removes a byte order mark, and the line feed of a CRLF whose first half ended the chunk before. */
  private trimStart(chunk: string): string {
    const first = chunk[0];
    const isIgnored = this.hasStarted
      ? this.endedInCarriageReturn && first === '\n'
      : first === BYTE_ORDER_MARK;
    this.hasStarted = true;
    this.endedInCarriageReturn = chunk.endsWith('\r');
    return isIgnored ? chunk.slice(1) : chunk;
  }

  private readLine(line: string, events: SseEvent[]): void {
    if (line === '') {
      this.dispatch(events);
      return;
    }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1);
    if (field === 'data') this.addData(value);
    else if (field === 'event') this.event = value;
    else if (field === 'id') this.id = value;
  }

  private addData(value: string): void {
    this.checkLength((this.data?.length ?? 0) + value.length);
    this.data = this.data === undefined ? value : `${this.data}\n${value}`;
  }

  private dispatch(events: SseEvent[]): void {
    if (this.data !== undefined) events.push({ event: this.event, id: this.id, data: this.data });
    this.event = '';
    this.data = undefined;
  }

  private checkLength(length: number): void {
    if (length > this.maxEventLength)
      throw new Error(`An event of the stream exceeds ${this.maxEventLength} characters`);
  }
}
