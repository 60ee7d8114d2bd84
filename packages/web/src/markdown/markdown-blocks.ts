const FENCE = /^ {0,3}(`{3,}|~{3,})/;
/** Lines that continue a block even after a blank line: lists, quotes, tables, references. */
const CONTINUES = /^(\s+\S|[-*+] |\d+[.)] |>|\||\[[^\]]+\]:)/;

/** What a link or a footnote anywhere in the text may refer to. */
const DEFINITION = /^ {0,3}\[[^\]\n]+\]:/m;

/** Splits Markdown where a block certainly ends, so that streaming text renders block by block. */
export function splitBlocks(text: string): string[] {
  if (DEFINITION.test(text) && isRenderable(text)) return [text];
  const blocks: string[] = [];
  let current: string[] = [];
  let fence: string | undefined;
  for (const line of text.split('\n')) {
    const isAfterBlank = current.at(-1)?.trim() === '';
    if (fence === undefined && isAfterBlank && line.trim() && !CONTINUES.test(line)) {
      blocks.push(current.join('\n'));
      current = [];
    }
    fence = trackFence(line, fence);
    current.push(line);
  }
  if (current.length > 0) blocks.push(current.join('\n'));
  return blocks;
}

/** Returns the fence that is open after this line; at least as many of the same marks close it. */
function trackFence(line: string, open: string | undefined): string | undefined {
  const [, marks] = FENCE.exec(line) ?? [];
  if (!marks) return open;
  if (open === undefined) return marks;
  return marks.startsWith(open) ? undefined : open;
}

/** Parsing time grows with every level of nested lists, and prose has no longer blocks than this. */
const MAX_LENGTH = 20_000;

/** A long run of marks that each open a nested element. */
const NESTED = /(?:[>*_~[\]!`]\s?|[-+] |\d{1,9}[.)] ){100}/;

/** Marks that the parser matches against all open ones. */
const PAIRED = /[*_[]/g;
const MAX_PAIRED = 1500;

/** An opening fence; backticks after it would be code inside a line. */
const FENCE_START = /^ {0,3}(`{3,}(?![^`]*`)|~{3,})/;

/** Whether Markdown renders quickly; other blocks are displayed as plain text. */
export function isRenderable(block: string): boolean {
  if (isCode(block)) return true;
  const paired = block.match(PAIRED)?.length ?? 0;
  return block.length <= MAX_LENGTH && paired <= MAX_PAIRED && !NESTED.test(block);
}

/** Whether the block is a single code fence. */
function isCode(block: string): boolean {
  const [first = '', ...lines] = block.trimEnd().split('\n');
  const [, marks] = FENCE_START.exec(first) ?? [];
  const end = marks ? lines.findIndex((line) => line.trim().startsWith(marks)) : 0;
  return marks !== undefined && (end === -1 || end === lines.length - 1);
}

export interface FencedCode {
  readonly language: string;
  readonly code: string;
}

/** The content of a long code fence, which the parser would need seconds for. */
export function readLongCode(block: string): FencedCode | undefined {
  if (block.length <= MAX_LENGTH || block.startsWith(' ') || !isCode(block)) return undefined;
  const [first = '', ...lines] = block.trimEnd().split('\n');
  const [, marks = '', language = ''] = /^(`+|~+)\s*(\S*)/.exec(first) ?? [];
  const isClosed = lines.at(-1)?.trim().startsWith(marks);
  return { language, code: (isClosed ? lines.slice(0, -1) : lines).join('\n') };
}

/** Code and what is escaped is left as it is; then the ways in which models write math. A formula has no start of another. */
const MATH =
  /(```[\s\S]*?(?:```|$)|~~~[\s\S]*?(?:~~~|$)|`[^`\n]*`)|\\\[((?:\\\\|\\(?![\\[])|[^\\])+?)\\\]|\\\(((?:\\\\|\\(?![\\(])|[^\\\n])+?)\\\)|(?<![^\n])([ \t]*)\$\$(?!\$)((?:(?!\$\$)[^\n])+)\$\$[ \t]*(?![^\n])|(?<![\\$\w])\$(?=[^\s$])([^$\n]*?[^\s$\\])\$(?![\w$])/g;

/** Writes all math with two dollar signs: a single one next to a number is more often a price. */
export function normalizeMath(text: string): string {
  if (!text.includes('$') && !text.includes('\\')) return text;
  return text.replace(MATH, (whole, ...groups: (string | undefined)[]) => {
    const [code, block, inline, indent, line, dollars] = groups;
    if (code !== undefined) return whole;
    if (block !== undefined) return `\n$$\n${block.trim()}\n$$\n`;
    // A formula on a line by itself; its indentation keeps it in its list.
    if (line !== undefined)
      return [`${indent}$$`, `${indent}${line.trim()}`, `${indent}$$`].join('\n');
    return `$$${inline ?? dollars}$$`;
  });
}
