const FENCE = '```';

/** Splits text for Slack into messages of at most `limit` characters; code goes on as code in the next. */
export function splitMessage(text: string, limit: number): string[] {
  const parts = new MessageParts(limit);
  const longest = limit - 2 * (FENCE.length + 1);
  for (const line of text.split('\n')) for (const piece of cutLine(line, longest)) parts.add(piece);
  return parts.end();
}

class MessageParts {
  readonly #done: string[] = [];
  readonly #room: number;
  #lines: string[] = [];
  #length = 0;
  #isCode = false;

  constructor(limit: number) {
    // Less the fence that closes a message in the middle of code.
    this.#room = limit - FENCE.length - 1;
  }

  add(line: string): void {
    if (this.#lines.length > 0 && this.#length + line.length > this.#room) this.#break();
    this.#push(line);
    if (line === FENCE) this.#isCode = !this.#isCode;
  }

  end(): string[] {
    this.#finish();
    return this.#done;
  }

  #break(): void {
    const isWithinCode = this.#isCode;
    if (isWithinCode) this.#lines.push(FENCE);
    this.#finish();
    if (isWithinCode) this.#push(FENCE);
  }

  #push(line: string): void {
    this.#lines.push(line);
    this.#length += line.length + 1;
  }

  #finish(): void {
    const part = this.#lines.join('\n');
    if (part.trim()) this.#done.push(part);
    this.#lines = [];
    this.#length = 0;
  }
}

/** At a space where there is one, and never within a link, an entity or a character. */
function cutLine(line: string, limit: number): string[] {
  const pieces: string[] = [];
  let rest = line;
  while (rest.length > limit) {
    const end = cutAt(rest, limit);
    pieces.push(rest.slice(0, end));
    rest = rest.slice(end).replace(/^ /, '');
  }
  return [...pieces, rest];
}

function cutAt(text: string, limit: number): number {
  const head = text.slice(0, limit);
  const openings = [/<[^>]*$/, /&[a-z]*$/, /[\ud800-\udbff]$/].map((open) => head.search(open));
  const whole = Math.min(limit, ...openings.filter((at) => at > 0));
  const space = head.lastIndexOf(' ', whole);
  const isWithinLink = head.lastIndexOf('<', space) > head.lastIndexOf('>', space);
  return space > limit / 2 && !isWithinLink ? space : whole;
}
