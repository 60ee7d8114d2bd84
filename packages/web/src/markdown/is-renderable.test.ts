import { expect, it } from 'vitest';
import { isRenderable } from './is-renderable.js';

it.each([
  ['prose', 'Some *words*, a [link](https://a.b) and a list:\n\n- one\n- two\n  - three'],
  ['a rule', `${'-'.repeat(80)}\n${'* '.repeat(40)}`],
  ['a quote in a quote', '>>> said\n>> said\n> she'],
  ['long code', `\`\`\`ts\n${'const a = [[[]]];\n'.repeat(5000)}\`\`\``],
  ['a table', `|a|b|\n|-|-|\n${'|1|2|\n'.repeat(500)}`],
  ['numbers', '1. 2. 3. '.repeat(20)],
])('%s is rendered', (_, text) => {
  expect(isRenderable(text)).toBe(true);
});

// Each takes the usual parsers seconds to minutes, or more stack than there is.
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
  ['a deep list', Array.from({ length: 300 }, (_, i) => `${' '.repeat(2 * i)}- a`).join('\n')],
])('%s without end are not', (_, text) => {
  expect(isRenderable(text)).toBe(false);
});
