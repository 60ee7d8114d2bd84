import { convertText, escapeText } from './convert-text.js';

const FENCE = /^\s*(```|~~~)/;
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
    if (FENCE.test(line)) {
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
