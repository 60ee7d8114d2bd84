import { readFileSync } from 'node:fs';
import ts from 'typescript';
import { expect, it } from 'vitest';

const MAX_NAMES = 75;

it(`the first page of @sibyl/plugin-kit shows an author at most ${MAX_NAMES} names`, () => {
  const path = `${import.meta.dirname}/index.ts`;
  const source = ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.Latest);
  const names = source.statements.flatMap(readExports);
  expect(names).toContain('definePlugin');
  // What few authors need belongs to a subpath, such as `/surface`.
  expect(names.length).toBeLessThanOrEqual(MAX_NAMES);
});

function readExports(statement: ts.Statement): string[] {
  const clause = ts.isExportDeclaration(statement) ? statement.exportClause : undefined;
  if (!clause || !ts.isNamedExports(clause))
    throw new Error('The first page names each of its exports, and does nothing else');
  return clause.elements.map(({ name }) => name.text);
}
