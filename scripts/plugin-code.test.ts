import { globSync, readFileSync } from 'node:fs';
import ts from 'typescript';
import { expect, it } from 'vitest';

const paths = globSync('{plugins,examples}/*/src/**/*.ts').filter(
  (path) => !path.endsWith('.test.ts'),
);

it.each(paths)('%s has no type assertions and no WeakMap', (path) => {
  const source = ts.createSourceFile(
    path,
    readFileSync(path, 'utf8'),
    ts.ScriptTarget.Latest,
    true,
  );
  const found: string[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isAsExpression(node) && !ts.isConstTypeReference(node.type)) found.push(node.getText());
    if (ts.isIdentifier(node) && node.text === 'WeakMap') found.push(node.text);
    ts.forEachChild(node, visit);
  };
  visit(source);
  expect(found).toEqual([]);
});

it.each(paths)('%s takes times that other hosts compare from the database', (path) => {
  const lines = readFileSync(path, 'utf8').split('\n');
  const own = /clock(?: =|:) Date\.now|(?:lease|expire|due|until)\w*:? .*Date\.now/i;
  expect(lines.filter((line) => own.test(line))).toEqual([]);
});
