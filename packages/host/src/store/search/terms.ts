import { isUnspaced, readQueryTerms, readTerms, type Term } from '@sibyl/plugin-kit/search';

export { MAX_INDEXED_TEXT as MAX_TEXT, readTerms } from '@sibyl/plugin-kit/search';

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
    const terms = readQueryTerms(source).slice(0, left);
    left -= terms.length;
    if (terms.length === 0) continue;
    // A space after it ends the word.
    const isLast = index + all.length === text.length;
    const isPrefix =
      (isLast && quoted === undefined) || (isSingleCharacter(terms) && isUnspaced(source));
    phrases.push({ terms: terms.map((term) => term.text), isPrefix });
  }
  return phrases;
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
