const FENCE = /^ {0,3}(`{3,}|~{3,})/;
/** Lines that belong to what is above them even after a blank one: lists, quotes, tables, references. */
const CONTINUES = /^(\s+\S|[-*+] |\d+[.)] |>|\||\[[^\]]+\]:)/;

/** Splits markdown where a block surely ends, so that a growing text can be rendered block by block. */
export function splitBlocks(text: string): string[] {
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

/** The fence that is open after this line; one closes with at least as many of its own marks. */
function trackFence(line: string, open: string | undefined): string | undefined {
  const [, marks] = FENCE.exec(line) ?? [];
  if (!marks) return open;
  if (open === undefined) return marks;
  return marks.startsWith(open) ? undefined : open;
}

/** Longer than anything but code is written in one piece; parsing nested lists takes longer with every level. */
const MAX_LENGTH = 20_000;

/** Marks that open something inside of something, one after the other. */
const NESTED = /(?:[>*_~[\]!`]\s?|[-+] |\d{1,9}[.)] ){100}/;

/** Marks that wait for another like them: each is compared with all that are open. */
const PAIRED = /[*_[]/g;
const MAX_PAIRED = 1500;

const FENCE_START = /^ {0,3}(```|~~~)/;

/** Whether markdown can be rendered in no time; otherwise it is nobody's prose, and shown as it is. */
export function isRenderable(block: string): boolean {
  if (isCode(block)) return true;
  const paired = block.match(PAIRED)?.length ?? 0;
  return block.length <= MAX_LENGTH && paired <= MAX_PAIRED && !NESTED.test(block);
}

/** Code and nothing after it. */
function isCode(block: string): boolean {
  const [first = '', ...lines] = block.trimEnd().split('\n');
  const [, marks] = FENCE_START.exec(first) ?? [];
  const end = marks ? lines.findIndex((line) => line.trim().startsWith(marks)) : 0;
  return marks !== undefined && (end === -1 || end === lines.length - 1);
}
