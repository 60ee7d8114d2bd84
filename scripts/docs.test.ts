import { existsSync, globSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { referencePages } from './reference-pages.ts';

const pages = ['README.md', 'CHANGELOG.md', ...globSync('docs/**/*.md')];
const scripts: Record<string, string> = JSON.parse(readFileSync('package.json', 'utf8')).scripts;

it.each(Object.entries(await referencePages()))('%s says what the code says', (path, text) => {
  expect(readFileSync(path, 'utf8'), 'run npm run docs').toBe(text);
});

/** Headings as links name them. */
const anchorsOf = (text: string) =>
  [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\d _-]/gu, '')
      .replaceAll(' ', '-'),
  );

describe.each(pages)('%s', (page) => {
  const text = readFileSync(page, 'utf8');

  it('links only to what is there', () => {
    const targets = [...text.matchAll(/\]\((?!https?:)([^)#\s]+)/g)].map((match) => match[1] ?? '');
    const missing = targets.filter((target) => !existsSync(join(dirname(page), target)));
    expect(missing).toEqual([]);
  });

  it('links only to headings that are there', () => {
    const links = [...text.matchAll(/\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)/g)];
    const dangling = links.filter(([, target = '', anchor = '']) => {
      const path = target ? join(dirname(page), target) : page;
      return !anchorsOf(readFileSync(path, 'utf8')).includes(anchor);
    });
    expect(dangling.map(([link]) => link)).toEqual([]);
  });

  it('names only npm scripts that exist', () => {
    const named = [...text.matchAll(/npm run (?:-s )?([\w:-]+)/g)].map((match) => match[1] ?? '');
    expect(named.filter((name) => !(name in scripts))).toEqual([]);
  });
});

it('the picture of the page is small', () => {
  expect(statSync('docs/page.png').size).toBeLessThan(100_000);
});

it('README stays short', () => {
  expect(readFileSync('README.md', 'utf8').split('\n').length).toBeLessThanOrEqual(120);
});
