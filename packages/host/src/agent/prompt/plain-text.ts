/**
 * What no text of a user needs and what could hide or reorder words in a prompt: control
 * characters, marks that turn the reading direction, and the invisible tag characters.
 */
const UNWANTED = /[\p{Cc}\u061C\u200E\u200F\u202A-\u202E\u2060-\u2069\uFEFF\u{E0000}-\u{E007F}]/gu;
const LINE_BREAKS = /\r\n?|[\u0085\u2028\u2029]/g;

/** A text of a user as one quoted line that cannot end its quotes. */
export function quoteLine(text: string, limit: number): string {
  return `"${plainLine(text, limit).replace(/["“”]/g, "'")}"`;
}

/** A text as one line. */
export function plainLine(text: string, limit: number): string {
  return bound(text.replace(/\s+/g, ' ').replace(UNWANTED, '').trim(), limit);
}

/** A text of a user as quoted lines: whatever it holds, every line of it is marked as theirs. */
export function quoteBlock(text: string, limit: number): string {
  return plainBlock(text, limit).replace(/^/gm, '> ');
}

/** A text that keeps its lines. */
export function plainBlock(text: string, limit: number): string {
  const lines = text.replace(LINE_BREAKS, '\n').split('\n');
  const plain = lines.map((line) => line.replace(/\t/g, ' ').replace(UNWANTED, '').trimEnd());
  return bound(plain.join('\n').trim(), limit);
}

function bound(text: string, limit: number): string {
  return text.length > limit ? `${text.slice(0, limit).toWellFormed()}…` : text.toWellFormed();
}
