/** Code on one line is not a fence, even between three marks. */
const OPENING_FENCE = /^\s*(`{3,}(?![^`]*`)|~{3,})/;
const CLOSING_FENCE = /^\s*(`{3,}|~{3,})\s*$/;
const TABLE_LINE = /^\s*\|.*\|\s*$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;

/** The block that the converted lines end in. */
interface OpenBlock {
  kind: 'text' | 'code' | 'table';
  fence: string | undefined;
}

const createBlock = (): OpenBlock => ({ kind: 'text', fence: undefined });

/** Converts Markdown to Slack's mrkdwn; nothing in it can mention people or channels. */
export function toMrkdwn(markdown: string): string {
  const block = createBlock();
  const lines = markdown.split('\n').flatMap((line) => convertNext(line, block));
  return [...lines, ...endBlock(block)].join('\n');
}

/** What a line becomes after those before it. */
function convertNext(line: string, block: OpenBlock): string[] {
  const fence = readFence(line, block.fence);
  if (fence !== block.fence) {
    block.fence = fence;
    return fence === undefined ? [] : openBlock(block, 'code');
  }
  const kind = fence === undefined ? classifyLine(line) : 'code';
  const opened = kind === block.kind ? [] : openBlock(block, kind);
  return [...opened, kind === 'text' ? convertLine(line) : escapeCode(line)];
}

function openBlock(block: OpenBlock, kind: OpenBlock['kind']): string[] {
  const ended = endBlock(block);
  block.kind = kind;
  // Slack has no tables: a fixed width keeps them readable.
  return kind === 'text' ? ended : [...ended, FENCE];
}

/** A stream may stop in the middle of a block, which then ends there. */
const endBlock = ({ kind }: OpenBlock): string[] => (kind === 'text' ? [] : [FENCE]);

/** The messages of an answer that grows. Its finished lines are converted once, since it is shown again every second. */
export class MrkdwnStream {
  private block = createBlock();
  private messages: MessageSplitter;
  /** The lines that are converted. */
  private finished = '';

  constructor(private readonly limit: number) {
    this.messages = new MessageSplitter(limit);
  }

  /** The same as `splitMessage` of all of it. */
  update(markdown: string): string[] {
    if (!markdown.startsWith(this.finished)) this.reset();
    const end = markdown.lastIndexOf('\n') + 1;
    if (end > this.finished.length) {
      const lines = markdown.slice(this.finished.length, end - 1).split('\n');
      for (const line of lines) this.messages.add(convertNext(line, this.block));
      this.finished = markdown.slice(0, end);
    }
    const block = { ...this.block };
    const messages = this.messages.copy();
    messages.add([...convertNext(markdown.slice(end), block), ...endBlock(block)]);
    return messages.end();
  }

  private reset(): void {
    this.block = createBlock();
    this.messages = new MessageSplitter(this.limit);
    this.finished = '';
  }
}

/** The fence that code is in after a line. The same marks close it, at least as many: code may contain other fences. */
function readFence(line: string, fence: string | undefined): string | undefined {
  if (fence === undefined) return OPENING_FENCE.exec(line)?.[1];
  return CLOSING_FENCE.exec(line)?.[1]?.startsWith(fence) ? undefined : fence;
}

function classifyLine(line: string): 'text' | 'table' {
  return TABLE_LINE.test(line) ? 'table' : 'text';
}

/** A line without it stays as it is. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the private marks are removed from texts.
const MARKUP = /[`*_~[<>&#+\-\u0001-\u0003]|\/\//;

function convertLine(line: string): string {
  if (!MARKUP.test(line)) return line;
  if (RULE.test(line)) return '⸻';
  // Matches to the end of the line, so that it cannot backtrack.
  const heading = /^\s{0,3}#{1,6}\s+(\S.*)$/s.exec(line);
  if (heading) return `*${convertText(trimHeading(heading[1] ?? ''))}*`;
  const quote = /^\s*(?:>\s*)+(.*)$/s.exec(line);
  if (quote) return `> ${convertLine(quote[1] ?? '')}`;
  const item = /^(\s*)[-*+]\s+(?:\[([ xX])\]\s+)?(.*)$/s.exec(line);
  if (item) return `${item[1]}${toBullet(item[2])} ${convertText(item[3] ?? '')}`;
  return convertText(line);
}

/** Removes closing marks, and emphasis since the heading is bold. */
function trimHeading(text: string): string {
  let end = text.trimEnd().length;
  while (text[end - 1] === '#') end -= 1;
  return text
    .slice(0, end)
    .trimEnd()
    .replace(/\*\*|__/g, '');
}

function toBullet(box: string | undefined): string {
  if (box === undefined) return '•';
  return box === ' ' ? '☐' : '☑';
}

/** Begins with the first mark: to begin again at each of them takes long. */
const CODE = /(?<!`)`+[^`]+`+/g;
/** A target may contain parentheses in pairs. */
const LINK =
  /!?\[([^[\]]*)\]\(\s*<?((?:\([^\s()<>]*\)|[^\s()<>])+)>?(?:\s+"[^"]*")?\s*\)|<?(https?:\/\/[^\s<>]+)>?/g;

/** Private marks that protect text while emphasis is converted. */
const BOLD = '\u0001';
const KEPT = ['\u0002', '\u0003'] as const;
const MARKS = new RegExp(`[${BOLD}${KEPT.join('')}]`, 'g');

/** Longer lines are not prose, and slow to search. */
const MAX_LENGTH = 4000;

/** Converts emphasis and links of one line, except in code. */
export function convertText(text: string): string {
  if (text.length > MAX_LENGTH) return escapeText(text);
  const kept: string[] = [];
  const keep = (piece: string) => toPlaceholder(kept.push(piece) - 1);
  const bare = text
    .replace(MARKS, '')
    .replace(CODE, (code) => keep(escapeText(code)))
    .replace(LINK, (...match) => keep(convertLink(match)));
  // A link may hold code, which was kept before it.
  const restore = (line: string): string =>
    line.replace(PLACEHOLDER, (_, index: string) => restore(kept[Number(index)] ?? ''));
  return restore(convertEmphasis(bare));
}

const toPlaceholder = (index: number) => KEPT.join(String(index));
const PLACEHOLDER = new RegExp(KEPT.join('(\\d+)'), 'g');

function convertLink([whole = '', label, target, bare]: readonly (string | undefined)[]): string {
  if (bare !== undefined) return escapeText(bare);
  if (!target || !/^(https?:\/\/|mailto:)/i.test(target)) return escapeText(whole);
  const url = escapeText(target).replaceAll('|', '%7C');
  const text = convertEmphasis(label ?? '').replaceAll('|', '¦');
  return text ? `<${url}|${text}>` : `<${url}>`;
}

/** A line with more marks of emphasis is not prose. */
const MAX_MARKS = 200;

/** Emphasis ends soon: to search for its end from every mark to the end of the line takes long. */
function convertEmphasis(text: string): string {
  const marks = text.match(/[*_~]/g)?.length ?? 0;
  if (marks === 0 || marks > MAX_MARKS) return escapeText(text);
  return escapeText(text)
    .replace(/\*\*\*(?=\S)(.{1,500}?)(?<=\S)\*\*\*/g, `_${BOLD}$1${BOLD}_`)
    .replace(/\*\*(?=\S)(.{1,500}?)(?<=\S)\*\*/g, `${BOLD}$1${BOLD}`)
    .replace(/(?<!\w)__(?=\S)(.{1,500}?)(?<=\S)__(?!\w)/g, `${BOLD}$1${BOLD}`)
    .replace(/(?<![*\w])\*(?=[^\s*])(.{1,500}?)(?<=[^\s*])\*(?![*\w])/g, '_$1_')
    .replace(/~~(?=\S)(.{1,500}?)(?<=\S)~~/g, '~$1~')
    .replaceAll(BOLD, '*');
}

/** Escapes Slack's markup. */
export function escapeText(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

const FENCE = '```';

/** A fence in code would end it. */
const escapeCode = (line: string) => escapeText(line).replace(/`(?=``)/g, '`\u200b');

/** Splits mrkdwn into messages of at most `limit` characters; a code block continues in the next message. */
export function splitMessage(text: string, limit: number): string[] {
  const parts = new MessageSplitter(limit);
  parts.add(text.split('\n'));
  return parts.end();
}

class MessageSplitter {
  private done: string[] = [];
  private readonly room: number;
  private lines: string[] = [];
  private length = 0;
  private isCode = false;

  constructor(private readonly limit: number) {
    // Less the fence that closes a message in the middle of code.
    this.room = limit - FENCE.length - 1;
  }

  copy(): MessageSplitter {
    const { done, lines, length, isCode } = this;
    const copied = { done: [...done], lines: [...lines], length, isCode };
    return Object.assign(new MessageSplitter(this.limit), copied);
  }

  add(lines: readonly string[]): void {
    const longest = this.limit - 2 * (FENCE.length + 1);
    for (const line of lines) for (const piece of splitLine(line, longest)) this.addPiece(piece);
  }

  private addPiece(line: string): void {
    if (this.lines.length > 0 && this.length + line.length > this.room) this.break();
    this.push(line);
    if (line === FENCE) this.isCode = !this.isCode;
  }

  end(): string[] {
    this.finish();
    return this.done;
  }

  private break(): void {
    const isWithinCode = this.isCode;
    if (isWithinCode) this.lines.push(FENCE);
    this.finish();
    if (isWithinCode) this.push(FENCE);
  }

  private push(line: string): void {
    this.lines.push(line);
    this.length += line.length + 1;
  }

  private finish(): void {
    const part = this.lines.join('\n');
    if (part.trim()) this.done.push(part);
    this.lines = [];
    this.length = 0;
  }
}

/** Breaks at a space if possible, and never within a link, an entity or a character. */
function splitLine(line: string, limit: number): string[] {
  const pieces: string[] = [];
  let rest = line;
  while (rest.length > limit) {
    const end = findBreak(rest, limit);
    pieces.push(rest.slice(0, end));
    rest = rest.slice(end).replace(/^ /, '');
  }
  return [...pieces, rest];
}

function findBreak(text: string, limit: number): number {
  const head = text.slice(0, limit);
  const openings = [/<[^>]*$/, /&[a-z]*$/, /[\ud800-\udbff]$/].map((open) => head.search(open));
  const whole = Math.min(limit, ...openings.filter((at) => at > 0));
  const space = head.lastIndexOf(' ', whole);
  const isWithinLink = head.lastIndexOf('<', space) > head.lastIndexOf('>', space);
  return space > limit / 2 && !isWithinLink ? space : whole;
}
