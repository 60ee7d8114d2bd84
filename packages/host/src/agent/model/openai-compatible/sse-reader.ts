const LONGEST_LINE = 8 * 1024 * 1024;

/** Cuts a text/event-stream into the data of its events, however the bytes arrive. */
export class SseReader {
  #rest = '';
  #data: string | undefined;
  #hasBegun = false;

  /** The data of every event that `text` completes. */
  push(text: string): string[] {
    const events: string[] = [];
    const buffer = this.#rest + this.#withoutMark(text);
    let start = 0;
    for (let end = buffer.indexOf('\n'); end >= 0; end = buffer.indexOf('\n', start)) {
      const line = buffer.slice(start, buffer[end - 1] === '\r' ? end - 1 : end);
      start = end + 1;
      this.#take(line, events);
    }
    this.#rest = buffer.slice(start);
    if (this.#rest.length > LONGEST_LINE) throw new Error('a line of the stream never ends');
    return events;
  }

  /** What a server left without the empty line that ends an event. */
  end(): string[] {
    const events: string[] = [];
    this.#take(this.#rest, events);
    this.#take('', events);
    return events;
  }

  #take(line: string, events: string[]): void {
    if (line === '') {
      if (this.#data !== undefined) events.push(this.#data);
      this.#data = undefined;
      return;
    }
    // Comments, event names and ids say nothing that the data does not.
    if (!line.startsWith('data:')) return;
    const value = line.slice(line[5] === ' ' ? 6 : 5);
    this.#data = this.#data === undefined ? value : `${this.#data}\n${value}`;
  }

  #withoutMark(text: string): string {
    if (this.#hasBegun) return text;
    this.#hasBegun = text.length > 0;
    return text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
  }
}
