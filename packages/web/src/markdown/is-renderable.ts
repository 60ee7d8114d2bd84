/** Longer than anything but code is written in one piece; parsing nested lists takes longer with every level. */
const LONGEST = 20_000;

/** Marks that open something inside of something, one after the other. */
const NESTED = /(?:[>*_~[\]!`]\s?|[-+] |\d{1,9}[.)] ){100}/;

/** Marks that wait for another like them: each is compared with all that are open. */
const PAIRED = /[*_[]/g;
const MOST_PAIRED = 1500;

const FENCE = /^ {0,3}(```|~~~)/;

/** Whether markdown can be rendered in no time; otherwise it is nobody's prose, and shown as it is. */
export function isRenderable(block: string): boolean {
  if (isCode(block)) return true;
  const paired = block.match(PAIRED)?.length ?? 0;
  return block.length <= LONGEST && paired <= MOST_PAIRED && !NESTED.test(block);
}

/** Code and nothing after it. */
function isCode(block: string): boolean {
  const [first = '', ...lines] = block.trimEnd().split('\n');
  const [, marks] = FENCE.exec(first) ?? [];
  const end = marks ? lines.findIndex((line) => line.trim().startsWith(marks)) : 0;
  return marks !== undefined && (end === -1 || end === lines.length - 1);
}
