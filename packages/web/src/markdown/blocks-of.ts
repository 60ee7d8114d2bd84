const FENCE = /^ {0,3}(`{3,}|~{3,})/;
/** Lines that belong to what is above them even after a blank one: lists, quotes, tables, references. */
const CONTINUES = /^(\s+\S|[-*+] |\d+[.)] |>|\||\[[^\]]+\]:)/;

/** Splits markdown where a block surely ends, so that a growing text can be rendered block by block. */
export function blocksOf(text: string): string[] {
  const blocks: string[] = [];
  let current: string[] = [];
  let fence: string | undefined;
  for (const line of text.split('\n')) {
    const isAfterBlank = current.at(-1)?.trim() === '';
    if (fence === undefined && isAfterBlank && line.trim() && !CONTINUES.test(line)) {
      blocks.push(current.join('\n'));
      current = [];
    }
    fence = fenceAfter(line, fence);
    current.push(line);
  }
  if (current.length > 0) blocks.push(current.join('\n'));
  return blocks;
}

/** The fence that is open after this line; one closes with at least as many of its own marks. */
function fenceAfter(line: string, open: string | undefined): string | undefined {
  const [, marks] = FENCE.exec(line) ?? [];
  if (!marks) return open;
  if (open === undefined) return marks;
  return marks.startsWith(open) ? undefined : open;
}
