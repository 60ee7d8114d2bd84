import { spawnSync } from 'node:child_process';
import { globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { ensureBuilt, TSC } from './build.ts';

ensureBuilt();

const FOLDER = 'test-output/snippets';
const pages = ['README.md', ...globSync('docs/**/*.md')];
const blocks = pages.flatMap((page) =>
  [...readFileSync(page, 'utf8').matchAll(/```tsx?\n(.*?)```/gs)].map(([, code = '']) => code),
);
/** A block that begins with a file name shows that file. */
const FILE = /^\/\/ ([\w./-]+\.ts)\n\n/;

it.each(blocks.filter((code) => FILE.test(code)).map((code) => [FILE.exec(code)?.[1] ?? '', code]))(
  'the docs show the current text of %s',
  (path, code) => {
    expect(code.replace(FILE, '')).toBe(readFileSync(path, 'utf8'));
  },
);

it('the declarations of @sibyl/client compile without the types of browsers', {
  timeout: 240_000,
}, () => {
  const folder = 'test-output/node-types';
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const imports = ['client', 'client/node'].map((name) => `export * from '@sibyl/${name}';\n`);
  writeFileSync(join(folder, 'index.ts'), imports.join(''));
  const compilerOptions = { lib: ['ES2022'], customConditions: [], skipLibCheck: false };
  const config = { extends: '../../tsconfig.tests.json', compilerOptions, include: ['.'] };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
  expect(compile(folder)).toEqual([0, '']);
});

it('the TypeScript in the docs compiles', { timeout: 240_000 }, () => {
  const snippets = blocks.filter((code) => !FILE.test(code));
  expect(snippets.length).toBeGreaterThan(0);
  rmSync(FOLDER, { recursive: true, force: true });
  mkdirSync(FOLDER, { recursive: true });
  for (const [i, code] of snippets.entries()) writeFileSync(join(FOLDER, `${i}.tsx`), code);
  // The declarations that packages publish, not their sources, which other checks compile.
  const compilerOptions = { customConditions: [] };
  const config = { extends: '../../tsconfig.tests.json', compilerOptions, include: ['.'] };
  writeFileSync(join(FOLDER, 'tsconfig.json'), JSON.stringify(config));
  expect(compile(FOLDER)).toEqual([0, '']);
});

/** The exit code, and what is wrong. */
function compile(folder: string) {
  const { stdout, status } = spawnSync(process.execPath, [TSC, '-p', folder], { encoding: 'utf8' });
  return [status, stdout];
}
