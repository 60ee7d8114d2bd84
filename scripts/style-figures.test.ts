import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { styleFigures } from './style-figures.ts';

const folder = mkdtempSync(join(tmpdir(), 'sibyl-style-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function file(name: string, lines: readonly string[]): string {
  const path = join(folder, name);
  writeFileSync(path, `${lines.join('\n')}\n`);
  return path;
}

const linesOf = (paths: readonly string[]) =>
  Object.fromEntries(styleFigures(paths).map(({ name, lines }) => [name, lines]));

it('counts files by their lines, and functions that have a body in braces by theirs', () => {
  const short = file('short.ts', ['const double = (n: number) => n * 2;']);
  const long = file('long.tsx', [
    '/** Not a line of the function. */',
    'function outer() {',
    '  const inner = () => {',
    '    return <p>…</p>;',
    '  };',
    '  return inner();',
    '}',
    'class Counter {',
    '  next(): number { return 1; }',
    '}',
  ]);
  expect(linesOf([short, long])).toEqual({
    'file, median': 1,
    'file, p90': 10,
    'file, longest': 10,
    'function, median': 3,
    'function, p90': 6,
    'function, longest': 6,
  });
});
