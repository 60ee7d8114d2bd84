import { type Output, table } from './terminal.js';

/** Longer texts between marks are not marked: the mark was meant as a character. */
const MAX_MARKED = 1000;
/** Enough of a line to recognize what it is: a heading, an item of a list, a fence. */
const OPENING_LENGTH = 8;

const FENCE = /^\s*(```|~~~)/;
const ROW = /^\s*\|/;
const RULER = /^\s*([-*_])(\s*\1){2,}\s*$/;

/**
 * Shows Markdown in a terminal as it arrives: text at once, a mark such as `**` once its end is there, rows of a table
 * together. Where the output is not styled, text stays as it is.
 */
export class MarkdownPrinter {
  /** What is not written yet of the line. */
  private pending = '';
  private place: 'start' | 'text' | 'code' = 'start';
  private isHeading = false;
  private rows: string[][] = [];

  constructor(private readonly output: Output) {}

  write(text: string): void {
    if (!this.output.isStyled) {
      this.output.write(text);
      return;
    }
    this.pending += text;
    for (;;) {
      const end = this.pending.indexOf('\n');
      if (end === -1) break;
      const line = this.pending.slice(0, end);
      this.pending = this.pending.slice(end + 1);
      this.endLine(line);
    }
    this.writeAhead();
  }

  /** Writes what is left. */
  end(): void {
    if (this.pending) this.endLine(this.pending, '');
    this.pending = '';
    this.writeRows();
    this.place = 'start';
  }

  /** A whole line, or the rest of one that has begun. */
  private endLine(line: string, lineEnd = '\n'): void {
    if (this.place === 'text') {
      this.output.write(`${this.render(line)}${lineEnd}`);
      this.place = 'start';
    } else if (FENCE.test(line)) {
      this.writeRows();
      this.place = this.place === 'code' ? 'start' : 'code';
    } else if (this.place === 'code') {
      this.output.write(`  ${this.output.style('code', line)}${lineEnd}`);
    } else if (ROW.test(line)) {
      this.addRow(line);
    } else {
      this.writeRows();
      this.output.write(`${this.renderOpening(line)}${lineEnd}`);
    }
    this.isHeading = false;
  }

  /** Writes the beginning of a line whose end has not arrived. */
  private writeAhead(): void {
    if (this.place === 'code') return;
    if (this.place === 'start') {
      if (!this.isRecognizable()) return;
      this.writeRows();
      const [opening, rest] = splitOpening(this.pending);
      this.output.write(this.renderBullet(opening));
      this.pending = rest;
      this.place = 'text';
    }
    const mark = findOpenMark(this.pending);
    const ready = this.pending.slice(0, mark);
    this.output.write(this.render(ready));
    this.pending = this.pending.slice(mark);
  }

  private isRecognizable(): boolean {
    const line = this.pending;
    if (FENCE.test(line) || ROW.test(line) || /^\s*([-*_]\s*){2,}$/.test(line)) return false;
    return line.length >= OPENING_LENGTH || /^\s*[^\s#>*+\-|`~\d_]/.test(line);
  }

  private renderOpening(line: string): string {
    if (RULER.test(line)) return this.output.dim('─'.repeat(40));
    const [opening, rest] = splitOpening(line);
    return this.renderBullet(opening) + this.render(rest);
  }

  private renderBullet(opening: string): string {
    this.isHeading = opening.includes('#');
    if (this.isHeading) return '';
    return opening
      .replace(/[-*+] \[([ xX])\] $/, (_, mark) => (mark === ' ' ? '☐ ' : '☑ '))
      .replace(/[-*+] $/, '• ')
      .replace(/> ?$/, this.output.dim('│ '));
  }

  private addRow(line: string): void {
    const cells = line
      .trim()
      .replace(/^\||\|$/g, '')
      .split('|');
    // The line between head and body.
    if (cells.every((cell) => /^\s*:?-+:?\s*$/.test(cell))) return;
    this.rows.push(cells.map((cell) => cell.trim().replaceAll(/\*\*|`/g, '')));
  }

  private writeRows(): void {
    if (this.rows.length === 0) return;
    const width = Math.max(...this.rows.map((row) => row.length));
    const [head = '', ...body] = table(
      this.rows.map((row) => Array.from({ length: width }, (_, i) => row[i] ?? '')),
    ).split('\n');
    this.output.write(`${[this.output.bold(head), ...body].join('\n')}\n`);
    this.rows = [];
  }

  /** Marks within a line. */
  private render(text: string): string {
    const { output } = this;
    const rendered = text.replaceAll(MARKED, (...match) => {
      const [whole, code, bold, italic, label, address] = match as (string | undefined)[];
      if (code !== undefined) return output.style('code', code);
      if (bold !== undefined) return output.bold(bold);
      if (italic !== undefined) return output.style('italic', italic);
      if (label === undefined) return whole ?? '';
      // The address is always shown: the label is chosen by the model.
      return `${output.style('underline', label)}${label === address ? '' : ` (${address})`}`;
    });
    return this.isHeading ? output.bold(rendered) : rendered;
  }
}

const MARKED =
  /`([^`\n]{1,1000})`|\*\*(?=\S)([^\n]{1,1000}?)(?<=\S)\*\*|(?<![\w*])\*(?=[^\s*])([^*\n]{1,1000})(?<=\S)\*(?!\w)|\[([^\]\n]{1,300})\]\(([^()\s]{1,1000})\)/g;

/** What a line begins with, such as `- ` or `## `, and the rest. */
function splitOpening(line: string): [string, string] {
  const [opening = ''] = /^\s*(#{1,6} +|[-*+] (\[[ xX]\] )?|\d{1,9}[.)] |> ?)?/.exec(line) ?? [];
  return [opening, line.slice(opening.length)];
}

/** Where a mark begins that may still be closed by what follows; the length of the text if there is none. */
function findOpenMark(text: string): number {
  const marks = text.replaceAll(MARKED, (whole) => ' '.repeat(whole.length));
  const open = marks.search(/[`*[]/);
  if (open === -1 || text.length - open > MAX_MARKED) return text.length;
  // A star between spaces is a star.
  if (/^\* /.test(marks.slice(open))) {
    const next = findOpenMark(text.slice(open + 1));
    return open + 1 + next;
  }
  return open;
}
