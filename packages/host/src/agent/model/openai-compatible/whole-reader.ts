const MAX_CHARACTERS = 8 * 1024 * 1024;

/** Collects a reply that came in one piece although a stream was asked for. */
export class WholeReader {
  #body = '';

  push(text: string): string[] {
    this.#body += text;
    if (this.#body.length > MAX_CHARACTERS) throw new Error('the reply never ends');
    return [];
  }

  end(): string[] {
    return [this.#body];
  }
}
