import { describe, expect, it } from 'vitest';
import { toMrkdwn } from './to-mrkdwn.js';

it.each([
  ['**bold** and *italic* and _italic_', '*bold* and _italic_ and _italic_'],
  ['__bold__, ~~gone~~', '*bold*, ~gone~'],
  ['***both***', '_*both*_'],
  ['a **b** *c* **d**', 'a *b* _c_ *d*'],
  ['2 * 3 * 4 = 24', '2 * 3 * 4 = 24'],
  ['snake_case_name and a__b__c', 'snake_case_name and a__b__c'],
  ['# Title', '*Title*'],
  ['### **Bold** title ##', '*Bold title*'],
  ['- one\n* two\n  + three', '• one\n• two\n  • three'],
  ['- [ ] open\n- [x] done', '☐ open\n☑ done'],
  ['1. first', '1. first'],
  ['> quoted **words**', '> quoted *words*'],
  ['---', '⸻'],
  ['[docs](https://a.b/c?d=1&e=2)', '<https://a.b/c?d=1&amp;e=2|docs>'],
  ['**[docs](https://a.b)** *`x`*', '*<https://a.b|docs>* _`x`_'],
  ['[`code` x](https://a.b)', '<https://a.b|`code` x>'],
  ['\u0002' + '0\u0003 `a`', '0 `a`'],
  ['![alt](https://a.b/i.png "title")', '<https://a.b/i.png|alt>'],
  ['[mail](mailto:a@b.c)', '<mailto:a@b.c|mail>'],
  ['https://a.b/c_d_e*f*', 'https://a.b/c_d_e*f*'],
  ['<https://a.b>', 'https://a.b'],
  ['`**code** <b>`', '`**code** &lt;b&gt;`'],
  ['a < b && c > d', 'a &lt; b &amp;&amp; c &gt; d'],
  ['plain', 'plain'],
  ['', ''],
])('turns %j into %j', (markdown, mrkdwn) => {
  expect(toMrkdwn(markdown)).toBe(mrkdwn);
});

it('keeps code as it is, without its language', () => {
  expect(toMrkdwn('see:\n```ts\nconst a = **b** < 1;\n# no title\n```\nend')).toBe(
    'see:\n```\nconst a = **b** &lt; 1;\n# no title\n```\nend',
  );
});

it('closes what a stream has not closed yet', () => {
  expect(toMrkdwn('```\nhalf')).toBe('```\nhalf\n```');
});

it('shows tables in a fixed width', () => {
  expect(toMrkdwn('| a | b |\n|---|---|\n| 1 | 2 |\nafter')).toBe(
    '```\n| a | b |\n|---|---|\n| 1 | 2 |\n```\nafter',
  );
});

describe('what would address people', () => {
  it.each([
    '<!channel>',
    '<@U123>',
    '[x](<!everyone>)',
    '[<!here>](https://a.b)',
    '`<!channel>`',
    '```\n<!channel>\n```',
    '# <!channel>',
    '[a](javascript:alert(1))',
    '[x|<!here>](https://a.b|<!here>)',
  ])('does not: %s', (markdown) => {
    const links = toMrkdwn(markdown).matchAll(/<([^>]*)>/g);
    for (const [, inside] of links) expect(inside).toMatch(/^https:\/\/[^|<]*\|[^|<]*$/);
  });
});

// Each would keep the host busy for minutes if a pattern tried every way to the end of its line.
it.each([
  ['a heading', `# a${' '.repeat(50_000)}b`],
  ['a closed heading', `# a${' #'.repeat(50_000)}b`],
  ['an item', `-${' '.repeat(200_000)}a\rb`],
  ['quotes in quotes', `${'>  '.repeat(100_000)}\rx`],
  ['a rule', `${'- '.repeat(100_000)}x`],
  ['a table', `|${'|  '.repeat(100_000)}x`],
  ['code', `${'`a'.repeat(1900)}\n`.repeat(50)],
  ['links', `${'[](a '.repeat(700)}\n`.repeat(50)],
])('takes no time over %s of any length', { timeout: 60_000 }, (_, text) => {
  expect(toMrkdwn(text)).not.toBe('');
});
