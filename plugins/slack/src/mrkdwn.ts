const OPENING_FENCE = /^\s*(```|~~~)/;
const TABLE_LINE = /^\s*\|.*\|\s*$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;

interface Block {
  readonly kind: 'text' | 'code' | 'table';
  readonly lines: string[];
}

/** Turns markdown into Slack's own kind; nothing in it can address people or channels. */
export function toMrkdwn(markdown: string): string {
  return blocksOf(markdown).map(convertBlock).join('\n');
}

/** A stream may stop in the middle of a block; it counts as if it ended there. */
function blocksOf(markdown: string): Block[] {
  const blocks: Block[] = [];
  let isCode = false;
  for (const line of markdown.split('\n')) {
    if (OPENING_FENCE.test(line)) {
      isCode = !isCode;
      if (isCode) blocks.push({ kind: 'code', lines: [] });
      continue;
    }
    const kind = isCode ? 'code' : kindOf(line);
    const last = blocks.at(-1);
    if (last?.kind === kind) last.lines.push(line);
    else blocks.push({ kind, lines: [line] });
  }
  return blocks;
}

function kindOf(line: string): 'text' | 'table' {
  return TABLE_LINE.test(line) ? 'table' : 'text';
}

function convertBlock({ kind, lines }: Block): string {
  if (kind === 'text') return lines.map(convertLine).join('\n');
  // Slack has no tables: in a fixed width they can still be read.
  return ['```', ...lines.map(escapeText), '```'].join('\n');
}

function convertLine(line: string): string {
  if (RULE.test(line)) return '⸻';
  // To the end of the line whatever it holds: a pattern that can fail there would try every way to it.
  const heading = /^\s{0,3}#{1,6}\s+(\S.*)$/s.exec(line);
  if (heading) return `*${convertText(headingOf(heading[1] ?? ''))}*`;
  const quote = /^\s*(?:>\s*)+(.*)$/s.exec(line);
  if (quote) return `> ${convertLine(quote[1] ?? '')}`;
  const item = /^(\s*)[-*+]\s+(?:\[([ xX])\]\s+)?(.*)$/s.exec(line);
  if (item) return `${item[1]}${bulletOf(item[2])} ${convertText(item[3] ?? '')}`;
  return convertText(line);
}

/** Without the marks that may close it, and those of emphasis: it is all bold. */
function headingOf(text: string): string {
  let end = text.trimEnd().length;
  while (text[end - 1] === '#') end -= 1;
  return text
    .slice(0, end)
    .trimEnd()
    .replace(/\*\*|__/g, '');
}

function bulletOf(box: string | undefined): string {
  if (box === undefined) return '•';
  return box === ' ' ? '☐' : '☑';
}

const CODE = /`+[^`]+`+/g;
const LINK = /!?\[([^\]]*)\]\(\s*<?(\S+?)>?(?:\s+"[^"]*")?\s*\)|<?(https?:\/\/[^\s<>]+)>?/g;

/** Marks of our own, for what must not be taken for emphasis while that is converted. */
const BOLD = '\u0001';
const KEPT = ['\u0002', '\u0003'] as const;
const MARKS = new RegExp(`[${BOLD}${KEPT.join('')}]`, 'g');

/** Longer lines are nobody's prose, and would take long to search. */
const MAX_LENGTH = 4000;

/** Emphasis and links of one line; code stays as it is. */
export function convertText(text: string): string {
  if (text.length > MAX_LENGTH) return escapeText(text);
  const kept: string[] = [];
  const keep = (piece: string) => placeOf(kept.push(piece) - 1);
  const bare = text
    .replace(MARKS, '')
    .replace(CODE, (code) => keep(escapeText(code)))
    .replace(LINK, (...match) => keep(linkOf(match as string[])));
  // A link may hold code, which was kept before it.
  const restore = (line: string): string =>
    line.replace(PLACE, (_, index: string) => restore(kept[Number(index)] ?? ''));
  return restore(emphasise(bare));
}

const placeOf = (index: number) => KEPT.join(String(index));
const PLACE = new RegExp(KEPT.join('(\\d+)'), 'g');

function linkOf([whole = '', label, target, bare]: readonly (string | undefined)[]): string {
  if (bare !== undefined) return escapeText(bare);
  if (!target || !/^(https?:\/\/|mailto:)/i.test(target)) return escapeText(whole);
  const url = escapeText(target).replaceAll('|', '%7C');
  const text = emphasise(label ?? '').replaceAll('|', '¦');
  return text ? `<${url}|${text}>` : `<${url}>`;
}

function emphasise(text: string): string {
  return escapeText(text)
    .replace(/\*\*\*(?=\S)(.+?)(?<=\S)\*\*\*/g, `_${BOLD}$1${BOLD}_`)
    .replace(/\*\*(?=\S)(.+?)(?<=\S)\*\*/g, `${BOLD}$1${BOLD}`)
    .replace(/(?<!\w)__(?=\S)(.+?)(?<=\S)__(?!\w)/g, `${BOLD}$1${BOLD}`)
    .replace(/(?<![*\w])\*(?=[^\s*])(.+?)(?<=[^\s*])\*(?![*\w])/g, '_$1_')
    .replace(/~~(?=\S)(.+?)(?<=\S)~~/g, '~$1~')
    .replaceAll(BOLD, '*');
}

/** So that nothing reads as markup of Slack's. */
export function escapeText(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

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
