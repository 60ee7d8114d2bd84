/** A server-sent event. */
export interface SseEvent {
  readonly event: string;
  readonly id: string;
  readonly data: string;
}

const LINE_END = /\r\n|\n|\r/;

/** Parses server-sent events from chunks of text that may be split anywhere. */
export class SseParser {
  private rest = '';
  private endedInReturn = false;
  private event = '';
  private id = '';
  private data: string[] = [];

  /** Returns the events that this chunk completes. */
  push(chunk: string): SseEvent[] {
    if (chunk === '') return [];
    // The carriage return already ended the line, so the line feed after it does not end another.
    const text = this.endedInReturn && chunk.startsWith('\n') ? chunk.slice(1) : chunk;
    this.endedInReturn = chunk.endsWith('\r');
    const lines = (this.rest + text).split(LINE_END);
    this.rest = lines.pop() ?? '';
    return lines.flatMap((line) => (line === '' ? this.dispatch() : this.read(line)));
  }

  private read(line: string): [] {
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') this.event = value;
    else if (field === 'id') this.id = value;
    else if (field === 'data') this.data.push(value);
    return [];
  }

  private dispatch(): SseEvent[] {
    const event = { event: this.event, id: this.id, data: this.data.join('\n') };
    const hasData = this.data.length > 0;
    this.event = '';
    this.data = [];
    return hasData ? [event] : [];
  }
}
