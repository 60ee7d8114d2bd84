/** One server-sent event, as text. */
export interface SseEvent {
  readonly event: string;
  readonly id: string;
  readonly data: string;
}

const LINE_END = /\r\n|\n|\r/;

/** Reads server-sent events out of text that comes in pieces, cut anywhere. */
export class SseParser {
  private rest = '';
  private endedInReturn = false;
  private event = '';
  private id = '';
  private data: string[] = [];

  /** The events that are whole with this piece. */
  push(piece: string): SseEvent[] {
    if (piece === '') return [];
    // A carriage return ended its line already; the line feed that belongs to it is no second end.
    const text = this.endedInReturn && piece.startsWith('\n') ? piece.slice(1) : piece;
    this.endedInReturn = piece.endsWith('\r');
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
