/** A word of a text, folded so that case and accents do not matter, and where it is. */
export interface Term {
  readonly text: string;
  readonly start: number;
  readonly end: number;
}

/** Longer texts are indexed up to here. */
export const MAX_TEXT = 100_000;
/** Longer words, such as encoded data, are compared by their beginning. */
const MAX_TERM = 64;

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
  const readable = text.length > MAX_TEXT ? text.slice(0, MAX_TEXT) : text;
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
  const text = fold(word);
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

/** Words that follow each other. */
export interface Phrase {
  readonly terms: readonly string[];
  /** Whether the last word may continue. */
  readonly isPrefix: boolean;
}

/** What to search for: all phrases must occur. */
export type SearchQuery = readonly Phrase[];

/** More than a user types; each costs a lookup. */
const MAX_QUERY_TERMS = 16;

/** Parses words and "quoted phrases"; the last word may be the beginning of one. Empty if there is no word. */
export function parseQuery(text: string): SearchQuery {
  const phrases: Phrase[] = [];
  let left = MAX_QUERY_TERMS;
  for (const { 1: quoted, 2: word, index, 0: all } of text.matchAll(/"([^"]*)"?|([^\s"]+)/g)) {
    const source = quoted ?? word ?? '';
    const terms = dropLastCharacter([...readTerms(source)]).slice(0, left);
    left -= terms.length;
    if (terms.length === 0) continue;
    // A space after it ends the word.
    const isLast = index + all.length === text.length;
    const isPrefix =
      (isLast && quoted === undefined) ||
      (isSingleCharacter(terms) && source.search(UNSPACED) !== -1);
    phrases.push({ terms: terms.map((term) => term.text), isPrefix });
  }
  return phrases;
}

/** The last character of a run is a separate word only in documents. */
function dropLastCharacter(terms: readonly Term[]): readonly Term[] {
  return terms.filter((term, i) => {
    const before = terms[i - 1];
    return before === undefined || term.end > before.end;
  });
}

const isSingleCharacter = ([first, ...more]: readonly Term[]): boolean =>
  first !== undefined && more.length === 0 && [...first.text].length === 1;

/** A part of a text around what was searched for. */
export interface Snippet {
  readonly text: string;
  /** Where the words are, as start and end in `text`. */
  readonly highlights: readonly (readonly [start: number, end: number])[];
}

const SNIPPET_LENGTH = 240;
/** How much of a snippet is before its first word. */
const LEAD = 60;
/** How far behind the first word a better place is looked for. */
const LOOK_AHEAD = 4_000;

/** Finds the place with the most different words of the query. */
export function buildSnippet(text: string, query: SearchQuery): Snippet {
  const matches = findMatches(text, query);
  const first = pickPlace(matches);
  const start = first ? alignStart(text, Math.max(0, first.start - LEAD)) : 0;
  const end = alignEnd(text, start + SNIPPET_LENGTH);
  const [before, after] = [start > 0 ? '…' : '', end < text.length ? '…' : ''];
  const shift = before.length - start;
  return {
    text: (before + text.slice(start, end) + after).toWellFormed(),
    highlights: matches
      .filter((match) => match.start >= start && match.end <= end)
      .map((match) => [match.start + shift, match.end + shift]),
  };
}

function findMatches(text: string, query: SearchQuery): Term[] {
  const words = new Set(query.flatMap(({ terms }) => terms));
  const prefixes = query.flatMap(({ terms, isPrefix }) => (isPrefix ? terms.slice(-1) : []));
  const matches: Term[] = [];
  for (const term of readTerms(text)) {
    if (matches[0] && term.start > matches[0].start + LOOK_AHEAD) break;
    if (words.has(term.text) || prefixes.some((prefix) => term.text.startsWith(prefix)))
      matches.push(term);
  }
  return matches;
}

function pickPlace(matches: readonly Term[]): Term | undefined {
  let best: { readonly first: Term; readonly words: number } | undefined;
  for (const [i, first] of matches.entries()) {
    const words = new Set<string>();
    for (let j = i; j < matches.length; j++) {
      const match = matches[j] as Term;
      if (match.end > first.start + SNIPPET_LENGTH - LEAD) break;
      words.add(match.text);
    }
    if (!best || words.size > best.words) best = { first, words: words.size };
  }
  return best?.first;
}

/** To the beginning of a word, if one is near. */
function alignStart(text: string, start: number): number {
  if (start === 0) return 0;
  const space = text.slice(start, start + LEAD / 2).search(/\s/);
  return space < 0 ? start : start + space + 1;
}

function alignEnd(text: string, end: number): number {
  if (end >= text.length) return text.length;
  const space = text.slice(end - LEAD / 2, end).search(/\s\S*$/);
  return space < 0 ? end : end - LEAD / 2 + space;
}
