/** Collects a reply that came in one piece although a stream was asked for. */
export class WholeReader {
  #body = '';

  push(text: string): string[] {
    this.#body += text;
    return [];
  }

  end(): string[] {
    return [this.#body];
  }
}
