import { describe, expect, it } from 'vitest';
import { buildSnippet, MAX_TEXT, parseQuery, readTerms } from './terms.js';

const read = (text: string) => [...readTerms(text)].map((term) => term.text);
const locate = (text: string) =>
  [...readTerms(text)].map(({ text: term, start, end }) => [term, start, end]);

describe('readTerms', () => {
  it('reads words in small letters and where they are', () => {
    expect(locate('An ORACLE, v2!')).toEqual([
      ['an', 0, 2],
      ['oracle', 3, 9],
      ['v2', 11, 13],
    ]);
    expect(read(' -- …')).toEqual([]);
  });

  it('reads accented letters without their marks, and compatibility forms as what they stand for', () => {
    const decomposed = 'Cafe\u0301s';
    expect(locate(`ÉCOLE ${decomposed} ok`)).toEqual([
      ['ecole', 0, 5],
      ['cafes', 6, 12],
      ['ok', 13, 15],
    ]);
    expect(read('ﬁn ① ⑴ ½')).toEqual(['fin', '1', '1', '12']);
    // A letter that is a mark only.
    expect(read('\u037a ok')).toEqual(['ok']);
    // Other marks are part of a letter.
    expect(read('कि')).toEqual(['कि']);
  });

  it('reads no more than the beginning of a word with many marks, which would take seconds', () => {
    const marks = (count: number) => '\u0307'.repeat(count) + '\u0323'.repeat(count);
    expect(locate(`e${marks(100)}d${marks(50_000)} b`.slice(0, 50_000))).toEqual([
      ['ed', 0, 50_000],
    ]);
    expect(read(`e${marks(300)}d`)).toEqual(['e']);
  });

  it('compares long words by their beginning', () => {
    expect(locate(`${'A'.repeat(70)} b`)).toEqual([
      ['a'.repeat(64), 0, 70],
      ['b', 71, 72],
    ]);
    expect(locate('É'.repeat(70))).toEqual([['e'.repeat(64), 0, 70]]);
    // The end is inside a character that takes two units.
    expect(read(`${'é'.repeat(63)}𐐀`)).toEqual([`${'e'.repeat(63)}\ufffd`]);
  });

  it('reads a long text up to its limit', () => {
    const full = `${'x'.repeat(MAX_TEXT - 3)} ab`;
    expect(read(full).at(-1)).toBe('ab');
    expect(read(`${full}cd ef`).at(-1)).toBe('ab');
    expect(read(`${full}cd ef`)).toHaveLength(2);
  });

  it('reads every two neighbors of a script without spaces, and the last character', () => {
    expect(locate('東京都')).toEqual([
      ['東京', 0, 2],
      ['京都', 1, 3],
      ['都', 2, 3],
    ]);
    expect(locate('ok in東京v2')).toEqual([
      ['ok', 0, 2],
      ['in', 3, 5],
      ['東京', 5, 7],
      ['京', 6, 7],
      ['v2', 7, 9],
    ]);
    expect(locate('𠮷野')).toEqual([
      ['𠮷野', 0, 3],
      ['野', 2, 3],
    ]);
    for (const run of ['ひら', 'カタ', 'กข', 'ກຂ', 'កខ', 'ကခ'])
      expect(read(run)).toEqual([run, [...run][1]]);
    expect(read('東aか')).toEqual(['東', 'a', 'か']);
    expect(read('한국어')).toEqual(['한국어'.normalize('NFKD')]);
  });
});

describe('parseQuery', () => {
  it('lets the last word be the beginning of one, unless a space ends it', () => {
    expect(parseQuery('Café oracle')).toEqual([
      { terms: ['cafe'], isPrefix: false },
      { terms: ['oracle'], isPrefix: true },
    ]);
    expect(parseQuery('oracle ')).toEqual([{ terms: ['oracle'], isPrefix: false }]);
    expect(parseQuery('a b ')).toEqual([
      { terms: ['a'], isPrefix: false },
      { terms: ['b'], isPrefix: false },
    ]);
  });

  it('keeps the words of a quoted phrase together, also without its last quote', () => {
    const phrase = { terms: ['carbon', 'footprint'], isPrefix: false };
    expect(parseQuery('"carbon footprint"')).toEqual([phrase]);
    expect(parseQuery('"Carbon, footprint')).toEqual([phrase]);
    expect(parseQuery('soil"carbon footprint"of')).toEqual([
      { terms: ['soil'], isPrefix: false },
      phrase,
      { terms: ['of'], isPrefix: true },
    ]);
    expect(parseQuery('low-carb')).toEqual([{ terms: ['low', 'carb'], isPrefix: true }]);
  });

  it('is empty without a word', () => {
    for (const text of ['', '  ', '""', '"- !', '…']) expect(parseQuery(text)).toEqual([]);
    expect(parseQuery('- "" word ')).toEqual([{ terms: ['word'], isPrefix: false }]);
  });

  it('finds a single character of a script without spaces by the pairs that begin with it', () => {
    expect(parseQuery('京 ')).toEqual([{ terms: ['京'], isPrefix: true }]);
    expect(parseQuery('"京"')).toEqual([{ terms: ['京'], isPrefix: true }]);
    expect(parseQuery('𠮷 ')).toEqual([{ terms: ['𠮷'], isPrefix: true }]);
    expect(parseQuery('и ')).toEqual([{ terms: ['и'], isPrefix: false }]);
    expect(parseQuery('"é"')).toEqual([{ terms: ['e'], isPrefix: false }]);
    expect(parseQuery('"京 a" b ')).toEqual([
      { terms: ['京', 'a'], isPrefix: false },
      { terms: ['b'], isPrefix: false },
    ]);
  });

  it('does not look for the last character of a run alone', () => {
    expect(parseQuery('東京都 ')).toEqual([{ terms: ['東京', '京都'], isPrefix: false }]);
    expect(parseQuery('天気 ')).toEqual([{ terms: ['天気'], isPrefix: false }]);
    expect(parseQuery('"天気 晴れ"')).toEqual([{ terms: ['天気', '晴れ'], isPrefix: false }]);
  });

  it('looks for at most 16 words, in all phrases together', () => {
    const words = Array.from({ length: 20 }, (_, i) => `w${i}`);
    const read16 = (text: string) => parseQuery(text).flatMap(({ terms }) => terms);
    expect(read16(words.join(' '))).toEqual(words.slice(0, 16));
    expect(read16(`"${words.join(' ')}"`)).toEqual(words.slice(0, 16));
    expect(parseQuery(`${words.slice(0, 15).join(' ')} "${words.slice(15).join(' ')}"`)).toEqual([
      ...words.slice(0, 15).map((word) => ({ terms: [word], isPrefix: false })),
      { terms: ['w15'], isPrefix: false },
    ]);
    expect(parseQuery(words.join(' ')).some(({ isPrefix }) => isPrefix)).toBe(false);
  });
});

/** The snippet, and the highlighted words of it. */
function shorten(text: string, query: string) {
  const { text: snippet, highlights } = buildSnippet(text, parseQuery(query));
  return { snippet, words: highlights.map(([start, end]) => snippet.slice(start, end)) };
}

/** Words of four characters with a space behind each. */
const fill = (count: number) => 'fill '.repeat(count);

describe('buildSnippet', () => {
  it('is the whole of a short text, with all words of the query highlighted', () => {
    expect(shorten('Soil of carbon, CARBON and Sôil', 'soil carbon ')).toEqual({
      snippet: 'Soil of carbon, CARBON and Sôil',
      words: ['Soil', 'carbon', 'CARBON', 'Sôil'],
    });
    expect(buildSnippet('a zebra', parseQuery('zebra')).highlights).toEqual([[2, 7]]);
  });

  it('highlights longer words than the last one, but not than the others', () => {
    expect(shorten('footprint carbons foot', 'carbon foot').words).toEqual(['footprint', 'foot']);
    expect(shorten('footprint foot', 'foot ').words).toEqual(['foot']);
    expect(shorten('lowest carbs', 'low-carb').words).toEqual(['carbs']);
  });

  it('is the beginning of a text without the words, up to the end of a word', () => {
    const { snippet, words } = shorten(`${fill(46)}abcdefgh ${fill(20)}`, 'zebra');
    // Without the word that the limit of 240 characters is in.
    expect(snippet).toBe(`${fill(46)}abcdefgh…`);
    expect(words).toEqual([]);
    expect(shorten('short', 'zebra').snippet).toBe('short');
    expect(shorten('x'.repeat(240), 'zebra').snippet).toBe('x'.repeat(240));
    expect(shorten('x'.repeat(241), 'zebra').snippet).toBe(`${'x'.repeat(240)}…`);
  });

  it('begins at a word shortly before the first match, and ends at the end of a word', () => {
    const text = `${fill(20)}zebra ${fill(80)}`;
    const { snippet, words } = shorten(text, 'zebra');
    expect(snippet).toBe(`…${fill(11)}zebra ${fill(35).trimEnd()}…`);
    expect(words).toEqual(['zebra']);
    // Near the beginning, nothing is left out before it.
    expect(shorten(`${fill(12)}zebra`, 'zebra').snippet).toBe(`${fill(12)}zebra`);
  });

  it('ends inside of text without spaces', () => {
    const text = `${'-'.repeat(100)}zebra${'-'.repeat(300)}`;
    const { snippet, words } = shorten(text, 'zebra');
    expect(snippet).toBe(`…${'-'.repeat(60)}zebra${'-'.repeat(175)}…`);
    expect(words).toEqual(['zebra']);
    // A space that is far from the end does not move it.
    const dashes = (count: number) => '-'.repeat(count);
    const before = (space: number) =>
      shorten(`${dashes(space)} ${dashes(99 - space)}zebra`, 'zebra').snippet;
    expect(before(70)).toBe(`…${dashes(30)} ${dashes(29)}zebra`);
    expect(before(69)).toBe(`…${dashes(30)}zebra`);
    const behind = (space: number) => shorten(`${dashes(space)} ${dashes(100)}`, 'zebra').snippet;
    expect(behind(209)).toBe(`${dashes(209)} ${dashes(30)}…`);
    expect(behind(210)).toBe(`${dashes(210)}…`);
    expect(shorten('😀'.repeat(200), 'zebra').snippet.isWellFormed()).toBe(true);
    expect(shorten(`x${'😀'.repeat(200)}`, 'zebra').snippet).toBe(`x${'😀'.repeat(119)}\ufffd…`);
  });

  it('shows the place with the most different words, the first of equal ones', () => {
    const both = `zebra zebra zebra ${fill(80)}lion and zebra ${fill(80)}`;
    expect(shorten(both, 'zebra lion ').words).toEqual(['lion', 'zebra']);
    const equal = `zebra one ${fill(80)}zebra two ${fill(80)}`;
    expect(shorten(equal, 'zebra').snippet).toMatch(/^zebra one/);
    // Words that do not fit behind the first one do not count.
    const apart = `zebra first ${fill(60)}lion ${fill(60)}`;
    expect(shorten(apart, 'zebra lion ').snippet).toMatch(/^zebra first/);
  });

  it('counts words up to 180 characters behind the first', () => {
    const place = (gap: number) => `lion ${fill(100)}zebra${'-'.repeat(gap)}lion ${fill(100)}`;
    expect(shorten(place(171), 'zebra lion ').words).toEqual(['zebra', 'lion']);
    expect(shorten(place(172), 'zebra lion ').words).toEqual(['lion']);
  });

  it('looks for a better place only near the first word', () => {
    const place = (distance: number) => `zebra${'-'.repeat(distance - 5)}lion zebra ${fill(60)}`;
    expect(shorten(place(3_990), 'zebra lion ').words).toEqual(['lion', 'zebra']);
    expect(shorten(place(4_001), 'zebra lion ').words).toEqual(['zebra']);
  });

  it('highlights only what is inside of the snippet', () => {
    const text = `zebra ${fill(40)}lion zebra ${fill(60)}zebra`;
    const { snippet, words } = shorten(text, 'zebra lion ');
    expect(words).toEqual(['lion', 'zebra']);
    expect(snippet).toMatch(/^…fill .*lion zebra .*fill…$/);
    // A word across the end is not highlighted.
    const long = `zebra ${'-'.repeat(229)} ${'zebra'.padEnd(30, 's')}`;
    expect(shorten(long, 'zebra').words).toEqual(['zebra']);
  });
});
