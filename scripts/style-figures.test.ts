import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { measureStyle } from './style-figures.ts';

const folder = mkdtempSync(join(tmpdir(), 'sibyl-style-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function file(name: string, lines: readonly string[]): string {
  const path = join(folder, name);
  writeFileSync(path, `${lines.join('\n')}\n`);
  return path;
}

const measure = (paths: readonly string[]) =>
  Object.fromEntries(measureStyle(paths).map(({ name, value }) => [name, value]));

it('measureStyle counts the lines of files and of functions with a body in braces', () => {
  const short = file('short.ts', ['const double = (n: number) => n * 2;']);
  const long = file('long.tsx', [
    '/** Not a line of the function. */',
    'function outer() {',
    '  const inner = () => {',
    '    return <p>…</p>;',
    '  };',
    '',
    '  return inner();',
    '}',
    'class Counter {',
    '  next(): number { return 1; }',
    '}',
  ]);
  expect(measure([short, long])).toEqual({
    'product files': 2,
    'file lines, median': 1,
    'file lines, p90': 11,
    'file lines, longest': 11,
    'function lines, median': 3,
    'function lines, p90': 6,
    'function lines, longest': 6,
  });
});
