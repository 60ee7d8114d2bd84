/** Where a command writes: text for people, or one JSON document for programs. */
export class Output {
  constructor(
    readonly format: 'text' | 'json',
    /** Whether bold, dimmed and colored text is shown as such. */
    readonly isStyled: boolean,
  ) {}

  /** The result: `value` as JSON, or `text` for people. */
  result(value: unknown, text: string): void {
    process.stdout.write(`${this.format === 'json' ? JSON.stringify(value, null, 2) : text}\n`);
  }

  /** A note for people, on standard error, so that it does not mix with the result. */
  note(text: string): void {
    if (this.format === 'text') process.stderr.write(`${text}\n`);
  }

  write(text: string): void {
    process.stdout.write(text);
  }

  /** Dimmed, if the output is a terminal. */
  dim(text: string): string {
    return this.style('dim', text);
  }

  bold(text: string): string {
    return this.style('bold', text);
  }

  style(style: Style, text: string): string {
    const [on, off] = styles[style];
    return this.isStyled ? `\u001b[${on}m${text}\u001b[${off}m` : text;
  }

  /** Says what the command waits for once that takes more than a second. */
  async progress<T>(text: string, work: Promise<T>): Promise<T> {
    const timer = setTimeout(() => this.note(this.dim(`${text}…`)), SILENT_MS);
    try {
      return await work;
    } finally {
      clearTimeout(timer);
    }
  }
}

const SILENT_MS = 1000;

const styles = {
  bold: [1, 22],
  dim: [2, 22],
  italic: [3, 23],
  underline: [4, 24],
  code: [36, 39],
} as const;

export type Style = keyof typeof styles;

/** Rows as columns of equal width. */
export function table(rows: readonly (readonly string[])[]): string {
  const widths = rows.reduce<number[]>(
    (widest, row) => row.map((cell, place) => Math.max(widest[place] ?? 0, cell.length)),
    [],
  );
  return rows
    .map((row) =>
      row
        .map((cell, place) => cell.padEnd(widths[place] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** Without the characters that steer a terminal: a model or tool must not move its cursor or name its window. */
export const plainText = (text: string): string =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is taken out.
  text.replaceAll(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, '');
