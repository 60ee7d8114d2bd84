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
  const heading = /^\s{0,3}#{1,6}\s+(.+?)\s*#*\s*$/.exec(line);
  if (heading) return `*${convertText((heading[1] ?? '').replace(/\*\*|__/g, ''))}*`;
  const quote = /^\s*(?:>\s?)+(.*)$/.exec(line);
  if (quote) return `> ${convertLine(quote[1] ?? '')}`;
  const item = /^(\s*)[-*+]\s+(?:\[([ xX])\]\s+)?(.*)$/.exec(line);
  if (item) return `${item[1]}${bulletOf(item[2])} ${convertText(item[3] ?? '')}`;
  return convertText(line);
}

function bulletOf(box: string | undefined): string {
  if (box === undefined) return '•';
  return box === ' ' ? '☐' : '☑';
}
