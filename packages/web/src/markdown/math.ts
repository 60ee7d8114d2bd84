/** Code and what is escaped is left as it is; then the ways in which models write math. */
const MATH =
  /(```[\s\S]*?(?:```|$)|~~~[\s\S]*?(?:~~~|$)|`[^`\n]*`)|\\\[([\s\S]+?)\\\]|\\\(([^\n]+?)\\\)|(?<![\\$\w])\$(?=[^\s$])([^$\n]*?[^\s$\\])\$(?![\w$])/g;

/** Writes all math with two dollar signs: a single one next to a number is more often a price. */
export function normalizeMath(text: string): string {
  if (!text.includes('$') && !text.includes('\\')) return text;
  return text.replace(MATH, (whole, ...groups: (string | undefined)[]) => {
    const [code, block, inline, dollars] = groups;
    if (code !== undefined) return whole;
    if (block !== undefined) return `\n$$\n${block.trim()}\n$$\n`;
    return `$$${inline ?? dollars}$$`;
  });
}
