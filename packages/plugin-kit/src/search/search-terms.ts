/** A word of a text, folded so that case and accents do not matter, and where it is. */
export interface Term {
  readonly text: string;
  readonly start: number;
  readonly end: number;
}

/** Longer texts are indexed up to here. */
export const MAX_INDEXED_TEXT = 100_000;
/** Longer words, such as encoded data, are compared by their beginning. */
const MAX_TERM = 64;
/** What is read of a word, marks included: to put many marks on one letter in order takes quadratic time. */
const MAX_WORD = 512;

const WORD = /[\p{L}\p{N}][\p{L}\p{N}\p{M}]*/gu;
const ASCII = /^[\x20-\x7e]*$/;
/** Scripts without spaces between words. */
const UNSPACED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]+/gu;

/**
 * Reads the words of a text in order. Where words have no spaces between them, every two neighboring characters are a
 * word, and so is the last one: then each character begins a word and is found by its beginning.
 */
export function* readTerms(text: string): Generator<Term> {
  const readable = text.length > MAX_INDEXED_TEXT ? text.slice(0, MAX_INDEXED_TEXT) : text;
  for (const { 0: word, index } of readable.matchAll(WORD)) {
    if (ASCII.test(word)) {
      yield { text: word.slice(0, MAX_TERM).toLowerCase(), start: index, end: index + word.length };
      continue;
    }
    let at = 0;
    for (const run of word.matchAll(UNSPACED)) {
      yield* readWord(word.slice(at, run.index), index + at);
      yield* readPairs(run[0], index + run.index);
      at = run.index + run[0].length;
    }
    yield* readWord(word.slice(at), index + at);
  }
}

function* readWord(word: string, start: number): Generator<Term> {
  const text = fold(word.slice(0, MAX_WORD));
  if (text) yield { text: text.slice(0, MAX_TERM).toWellFormed(), start, end: start + word.length };
}

function* readPairs(run: string, start: number): Generator<Term> {
  const characters = [...run];
  let at = start;
  for (const [i, character] of characters.entries()) {
    const pair = character + (characters[i + 1] ?? '');
    const text = fold(pair);
    if (text) yield { text, start: at, end: at + pair.length };
    at += character.length;
  }
}

/** Without the marks of accented letters, and without what compatibility forms contain besides letters and digits. */
const fold = (word: string): string =>
  word
    .normalize('NFKD')
    .replace(/[\u0300-\u036f]|[^\p{L}\p{N}\p{M}]/gu, '')
    .toLowerCase();

/** Reads the words to search for. The last character of a run is a separate word only in documents. */
export function readQueryTerms(text: string): Term[] {
  return [...readTerms(text)].filter((term, i, terms) => {
    const before = terms[i - 1];
    return before === undefined || term.end > before.end;
  });
}

/** Whether a text contains a script without spaces between words. */
export const isUnspaced = (text: string): boolean => text.search(UNSPACED) !== -1;
