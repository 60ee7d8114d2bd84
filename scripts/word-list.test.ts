import { describe, expect, it } from 'vitest';
import { checkWords } from './word-list.ts';

const find = (text: string, path = 'packages/x/src/file.ts') =>
  checkWords(path, text).map(({ line, word }) => `${line} ${word}`);

describe('checkWords finds', () => {
  it('words of names where they are declared', () => {
    const code = 'class CallDesk { private laneOf(PATIENCE_MS: number) {} }\n[].indexOf(1);';
    expect(find(code)).toEqual(['1 CallDesk', '1 laneOf', '1 laneOf', '1 PATIENCE_MS']);
  });

  it('words of file names', () => {
    expect(find('', 'packages/x/src/run-keeper.test.ts')).toEqual(['1 run-keeper']);
  });

  it('errors and dependencies of types by how their names end', () => {
    expect(find('interface TurnParts {}\ntype UcanFault = 1;\nconst parts = 1;')).toEqual([
      '1 TurnParts',
      '2 UcanFault',
    ]);
  });

  it('words of comments, strings, templates and elements', () => {
    const code = [
      '/**',
      ' * Nobody.',
      ' */',
      "const a = 'is told'; // anew",
      `const b = \`so far \${a} of its own\`;`,
      'const c = <p>whoever</p>;',
    ].join('\n');
    expect(find(code, 'packages/x/src/file.tsx').toSorted()).toEqual([
      '2 Nobody',
      '4 anew',
      '4 told',
      '5 of its own',
      '5 so far',
      '6 whoever',
    ]);
  });

  it('references to a document that readers do not have', () => {
    expect(find('/** The wire form (contract B3). */')).toEqual(['1 (contract B3']);
  });

  it('words of documents', () => {
    expect(find('# Title\n\nIt goes on, in every colour.', 'docs/x.md')).toEqual([
      '3 goes on',
      '3 colour',
    ]);
  });
});

it.each([
  'There is no key, and it is no longer there.',
  'It retold a shortcut of the desktop.',
  'One that is not one of them; organize; promise; otherwise; raise.',
])('checkWords accepts: %s', (text) => {
  expect(find(text, 'docs/x.md')).toEqual([]);
});

it('checkWords accepts names of JSON Schema and of JavaScript', () => {
  expect(find('const schema = { anyOf: [], valueOf: 1 };')).toEqual([]);
});
