import { describe, expect, it } from 'vitest';
import { isRenderable, normalizeMath, readLongCode, splitBlocks } from './markdown-blocks.js';

describe('blocksOf', () => {
  it('splits paragraphs and headings', () => {
    expect(splitBlocks('# A\n\none\ntwo\n\nthree')).toEqual(['# A\n', 'one\ntwo\n', 'three']);
  });

  it.each([
    ['a list', '- a\n\n- b\n\n  more of b\n\n1. c'],
    ['a quote', '> a\n\n> b'],
    ['a fence with blank lines', '```ts\na\n\nb\n```'],
    ['a fence inside a longer one', '````md\n```\n\n```\n\nx\n````'],
    [
      'text with definitions',
      'A [link][a] and a note[^1].\n\nMore\n\n[a]: https://a.b\n[^1]: Note',
    ],
    ['a fence that is not closed yet', '~~~\na\n\nb'],
  ])('keeps %s whole', (_, text) => {
    expect(splitBlocks(text)).toEqual([text]);
  });

  it('preserves all text', () => {
    const text = 'a\n\n\n```\nx\n\n```\n\n- l\n\nend\n';
    expect(splitBlocks(text).join('\n')).toBe(text);
  });

  it('changes only the last block while text is added', () => {
    const before = splitBlocks('one\n\ntwo\n\nthr');
    const after = splitBlocks('one\n\ntwo\n\nthree and more');
    expect(after.slice(0, 2)).toEqual(before.slice(0, 2));
  });
});

it.each([
  ['prose', 'Some *words*, a [link](https://a.b) and a list:\n\n- one\n- two\n  - three'],
  ['a rule', `${'-'.repeat(80)}\n${'* '.repeat(40)}`],
  ['a quote in a quote', '>>> said\n>> said\n> she'],
  ['long code', `\`\`\`ts\n${'const a = [[[]]];\n'.repeat(5000)}\`\`\``],
  ['a table', `|a|b|\n|-|-|\n${'|1|2|\n'.repeat(500)}`],
  ['numbers', '1. 2. 3. '.repeat(20)],
])('isRenderable accepts %s', (_, text) => {
  expect(isRenderable(text)).toBe(true);
});

// Each takes common parsers seconds to minutes, or overflows the stack.
it.each([
  ['quotes', `${'>'.repeat(5000)}x`],
  ['spaced quotes', `${'> '.repeat(5000)}x`],
  ['lists', '- '.repeat(3000)],
  ['numbered lists', '1. '.repeat(3000)],
  ['emphasis', `${'*'.repeat(20_000)}a${'*'.repeat(20_000)}`],
  ['brackets', '!['.repeat(3000)],
  ['emphasis in emphasis', `${'*a('.repeat(2000)}${')a*'.repeat(2000)}`],
  ['links in links', `${'[('.repeat(2000)}${')](x)'.repeat(2000)}`],
  ['quotes after code', `\`\`\`\n\`\`\`\n${'>'.repeat(5000)}x`],
  ['fences in a line', '```a '.repeat(30_000)],
  ['a deep list', Array.from({ length: 300 }, (_, i) => `${' '.repeat(2 * i)}- a`).join('\n')],
])('isRenderable rejects endless %s', (_, text) => {
  expect(isRenderable(text)).toBe(false);
});

it.each([
  ['the sum $a + b$ is', 'the sum $$a + b$$ is'],
  ['inline \\(x^2\\) too', 'inline $$x^2$$ too'],
  ['a block \\[x\\] here', 'a block \n$$\nx\n$$\n here'],
  ['rows \\[a \\\\[4pt] \\sqrt b\\] here', 'rows \n$$\na \\\\[4pt] \\sqrt b\n$$\n here'],
  ['already $$y$$ fine', 'already $$y$$ fine'],
  ['alone:\n$$ x_1 = \\text{\\$5} $$\nThen', 'alone:\n$$\nx_1 = \\text{\\$5}\n$$\nThen'],
  ['1. Item\n   $$y$$', '1. Item\n   $$\n   y\n   $$'],
  ['$$a$$ and $$b$$', '$$a$$ and $$b$$'],
])('normalizeMath recognizes %j', (text, math) => {
  expect(normalizeMath(text)).toBe(math);
});

it.each([
  'it costs $5 and then $10 more',
  'between $5 and $7.50',
  'the variable `$HOME$` and `\\(x\\)`',
  '```sh\necho $PATH $HOME\n```',
  'escaped \\$5$',
])('normalizeMath leaves %j as it is', (text) => {
  expect(normalizeMath(text)).toBe(text);
});

it.each(['\\[ ', '\\( '])('normalizeMath is fast with many %s that are not closed', (start) => {
  const text = start.repeat(200_000);
  expect(normalizeMath(text)).toBe(text);
});

const LINES = Array.from({ length: 5000 }, (_, i) => `print(${i})`).join('\n');

it.each([
  ['closed', `\`\`\`python\n${LINES}\n\`\`\`\n`, 'python'],
  ['open', `\`\`\`python title="a"\n${LINES}`, 'python'],
  ['with other marks', `~~~~\n${LINES}\n~~~~`, ''],
])('readLongCode reads a long fence that is %s', (_, block, language) => {
  expect(readLongCode(block)).toEqual({ language, code: LINES });
});

it.each([
  ['short code', '```ts\na\n```'],
  ['text after code', `\`\`\`\n${LINES}\n\`\`\`\nand text`],
  ['a list', `- a\n${LINES}`],
])('readLongCode leaves %s to the parser', (_, block) => {
  expect(readLongCode(block)).toBeUndefined();
});
