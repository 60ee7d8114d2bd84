import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const FOLDER = 'test-output/snippets';
const pages = ['README.md', ...readdirSync('docs').map((name) => join('docs', name))];
const snippets = pages.flatMap((page) =>
  [...readFileSync(page, 'utf8').matchAll(/```ts\n(.*?)```/gs)].map(([, code = '']) => code),
);

it('the TypeScript in the docs is what the compiler accepts', () => {
  expect(snippets.length).toBeGreaterThan(0);
  rmSync(FOLDER, { recursive: true, force: true });
  mkdirSync(FOLDER, { recursive: true });
  for (const [i, code] of snippets.entries()) writeFileSync(join(FOLDER, `${i}.ts`), code);
  const config = { extends: '../../tsconfig.tests.json', include: ['.'] };
  writeFileSync(join(FOLDER, 'tsconfig.json'), JSON.stringify(config));
  const { stdout, status } = spawnSync('tsc', ['-p', FOLDER], { encoding: 'utf8' });
  expect([status, stdout]).toEqual([0, '']);
});
