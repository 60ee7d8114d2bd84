/** A page that is made from the code. */
export function page(title: string, ...paragraphs: readonly string[]): string {
  const note = '<!-- Made by `npm run docs`; edit the code it is made from. -->';
  return `${[`# ${title}`, note, ...paragraphs].join('\n\n')}\n`;
}

/** A table of Markdown; cells are Markdown too. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [head, head.map(() => '---'), ...rows].map((cells, i) =>
    i === 1 ? `|${cells.join('|')}|` : `| ${cells.join(' | ')} |`,
  );
  return lines.join('\n');
}
