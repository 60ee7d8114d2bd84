import { existsSync, globSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ISOLATED, LONG, SLOW } from '../vitest.config.ts';
import { buildReferencePages } from './reference-pages.ts';

const pages = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', ...globSync('docs/**/*.md')];
const readScripts = (path: string): Record<string, string> =>
  JSON.parse(readFileSync(path, 'utf8')).scripts;
/** Of this repository, and of a project that `sibyl new` creates. */
const scripts = {
  ...readScripts('package.json'),
  ...readScripts('packages/cli/template/package.json.template'),
};

it.each(Object.entries(await buildReferencePages()))('%s matches the code', (path, text) => {
  expect(readFileSync(path, 'utf8'), 'run npm run docs').toBe(text);
});

/** Headings in the form of link anchors. */
const listAnchors = (text: string) =>
  [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\d _-]/gu, '')
      .replaceAll(' ', '-'),
  );

describe.each(pages)('%s', (page) => {
  const text = readFileSync(page, 'utf8');

  it('links only to files that exist', () => {
    const targets = [...text.matchAll(/\]\((?!https?:)([^)#\s]+)/g)].map((match) => match[1] ?? '');
    const missing = targets.filter((target) => !existsSync(join(dirname(page), target)));
    expect(missing).toEqual([]);
  });

  it('links only to headings that exist', () => {
    const links = [...text.matchAll(/\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)/g)];
    const dangling = links.filter(([, target = '', anchor = '']) => {
      const path = target ? join(dirname(page), target) : page;
      return !listAnchors(readFileSync(path, 'utf8')).includes(anchor);
    });
    expect(dangling.map(([link]) => link)).toEqual([]);
  });

  it('names only npm scripts that exist', () => {
    const named = [...text.matchAll(/npm run (?:-s )?([\w:-]+)/g)].map((match) => match[1] ?? '');
    expect(named.filter((name) => !(name in scripts))).toEqual([]);
  });
});

it('CONTRIBUTING.md names only paths that exist', () => {
  const text = readFileSync('CONTRIBUTING.md', 'utf8');
  const paths = [...text.matchAll(/`((?:packages|plugins|scripts|docs|bench)\/[\w./-]+)`/g)];
  expect(paths.map(([, path = '']) => path).filter((path) => !existsSync(path))).toEqual([]);
});

/** A class with a method, or any word of the code. */
function isDeclared(name: string, sources: readonly string[]): boolean {
  const [owner = '', method] = name.split('.');
  if (method === undefined)
    return sources.some((source) => new RegExp(`\\b${owner}\\b`).test(source));
  const declaration = new RegExp(`^  (?:[a-z]+ )*\\*?${method}(?:[(<]| = )`, 'm');
  const isOwner = new RegExp(`class ${owner}\\b`);
  return sources.some((source) => isOwner.test(source) && declaration.test(source));
}

it('docs/architecture.md names only files and functions that exist in its paths', () => {
  const text = readFileSync('docs/architecture.md', 'utf8');
  const [, paths = ''] = text.split('## Five paths through the code');
  const sections = (paths.split('\n## ')[0] ?? '').split('\n### ').slice(1);
  expect(sections).toHaveLength(5);
  const missing = sections.flatMap((section) => {
    const root = `packages/${section.startsWith('A gateway') ? 'gateway' : 'host'}/src`;
    const names = [...section.matchAll(/`([\w./-]+\.ts|\w+(?:\.\w+)?)`/g)].map(
      ([, name = '']) => name,
    );
    const files = names.filter((name) => name.endsWith('.ts')).map((name) => join(root, name));
    const sources = files
      .filter((file) => existsSync(file))
      .map((file) => readFileSync(file, 'utf8'));
    const others = names.filter((name) => !name.endsWith('.ts'));
    return [
      ...files.filter((file) => !existsSync(file)),
      ...others.filter((name) => !isDeclared(name, sources)),
    ];
  });
  expect(missing).toEqual([]);
});

it('vitest.config.ts lists only slow tests that exist', () => {
  expect(
    [...SLOW, ...ISOLATED, ...LONG].filter(
      (pattern) => globSync(pattern, { exclude: ['**/node_modules/**'] }).length === 0,
    ),
  ).toEqual([]);
});

it('docs/page.png is small', () => {
  expect(statSync('docs/page.png').size).toBeLessThan(100_000);
});

it('README.md is short', () => {
  expect(readFileSync('README.md', 'utf8').split('\n').length).toBeLessThanOrEqual(120);
});
