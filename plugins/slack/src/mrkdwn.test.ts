import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { MrkdwnStream, splitMessage, toMrkdwn } from './mrkdwn.js';

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
  ['see [x](https://a.b/C_(d)), y', 'see <https://a.b/C_(d)|x>, y'],
  ['([x](https://a.b))', '(<https://a.b|x>)'],
  ['[mail](mailto:a@b.c)', '<mailto:a@b.c|mail>'],
  ['https://a.b/c_d_e*f*', 'https://a.b/c_d_e*f*'],
  ['<https://a.b>', 'https://a.b'],
  ['`**code** <b>`', '`**code** &lt;b&gt;`'],
  ['a < b && c > d', 'a &lt; b &amp;&amp; c &gt; d'],
  ['plain', 'plain'],
  ['', ''],
])('toMrkdwn turns %j into %j', (markdown, mrkdwn) => {
  expect(toMrkdwn(markdown)).toBe(mrkdwn);
});

it('toMrkdwn keeps code as it is, without its language', () => {
  expect(toMrkdwn('see:\n```ts\nconst a = **b** < 1;\n# no title\n```\nend')).toBe(
    'see:\n```\nconst a = **b** &lt; 1;\n# no title\n```\nend',
  );
});

it.each([
  ['````md\n```js\nx\n```\n````\n**b**', '```\n`\u200b``js\nx\n`\u200b``\n```\n*b*'],
  ['~~~\n```\n~~~\n**b**', '```\n`\u200b``\n```\n*b*'],
  ['```one line```\n**b**', '```one line```\n*b*'],
])('toMrkdwn ends code at its own fence: %j', (markdown, mrkdwn) => {
  expect(toMrkdwn(markdown)).toBe(mrkdwn);
});

it('toMrkdwn closes what a stream has not closed yet', () => {
  expect(toMrkdwn('```\nhalf')).toBe('```\nhalf\n```');
});

it('toMrkdwn shows tables in a fixed width', () => {
  expect(toMrkdwn('| a | b |\n|---|---|\n| 1 | 2 |\nafter')).toBe(
    '```\n| a | b |\n|---|---|\n| 1 | 2 |\n```\nafter',
  );
});

describe('toMrkdwn: what would address people', () => {
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
  ['marks of code', `${'`'.repeat(500_000)}x\``],
  ['marks of code in lines', `x${'`'.repeat(3900)}\n`.repeat(250)],
  ['emphasis', `${'***a '.repeat(790)}\n`.repeat(250)],
  ['brackets', `${'['.repeat(3999)}\n`.repeat(1000)],
  ['links', `${'[](a '.repeat(700)}\n`.repeat(50)],
])('toMrkdwn takes no time over %s of any length', { timeout: 60_000 }, (_, text) => {
  expect(toMrkdwn(text)).not.toBe('');
});

it('toMrkdwn leaves a line of more emphasis than prose has as it is', () => {
  expect(toMrkdwn('**a** '.repeat(50))).toBe('*a* '.repeat(50));
  expect(toMrkdwn('**a** '.repeat(51))).toBe('**a** '.repeat(51));
});

describe('MrkdwnStream', () => {
  const markdown = [
    ...['# Title', '**bold**', '```ts', 'const a = 1;', '# no title', '```', '', '| a |', '|---|'],
    ...['- item', '~~~', '```', '~~~', '```', '```', `long ${'x y '.repeat(100)}`, 'end'],
  ].join('\n');

  it('converts an answer that grows like one that is complete', () => {
    const stream = new MrkdwnStream(100);
    for (let end = 0; end <= markdown.length; end += 3) {
      const text = markdown.slice(0, end);
      expect(stream.update(text)).toEqual(splitMessage(toMrkdwn(text), 100));
    }
  });

  it('converts another answer from its beginning', () => {
    const stream = new MrkdwnStream(100);
    stream.update('```\nthinking\n');
    expect(stream.update(markdown)).toEqual(splitMessage(toMrkdwn(markdown), 100));
  });

  it('MrkdwnStream.update converts finished lines once', () => {
    const stream = new MrkdwnStream(100);
    const lines = '**bold** text\n'.repeat(1000);
    stream.update(lines);
    const exec = vi.spyOn(RegExp.prototype, 'exec');
    onTestFinished(() => exec.mockRestore());
    const shown = stream.update(`${lines}and more`);
    const { length } = exec.mock.calls;
    exec.mockRestore();
    expect(shown.at(-1)).toMatch(/and more$/);
    expect(length).toBeLessThan(100);
  });
});

it('splitMessage leaves a short message whole, and an empty one out', () => {
  expect(splitMessage('short\nmessage', 100)).toEqual(['short\nmessage']);
  expect(splitMessage(' \n ', 100)).toEqual([]);
});

it('splitMessage splits at lines', () => {
  const lines = Array.from({ length: 20 }, (_, i) => `line ${i} ${'x'.repeat(20)}`);
  const parts = splitMessage(lines.join('\n'), 100);
  expect(parts.length).toBeGreaterThan(5);
  expect(parts.every(({ length }) => length <= 100)).toBe(true);
  expect(parts.join('\n')).toBe(lines.join('\n'));
});

it('splitMessage continues code blocks in the next message', () => {
  const code = Array.from({ length: 20 }, (_, i) => `code ${i}`);
  const parts = splitMessage(['before', '```', ...code, '```', 'after'].join('\n'), 60);
  for (const part of parts) {
    expect(part.length).toBeLessThanOrEqual(60);
    expect(part.split('\n').filter((line) => line === '```').length % 2).toBe(0);
  }
  const lines = parts.flatMap((part) => part.split('\n')).filter((line) => line !== '```');
  expect(lines).toEqual(['before', ...code, 'after']);
});

it('splitMessage breaks long lines at spaces, never within links, entities or characters', () => {
  const text = Array.from({ length: 60 }, (_, i) => `w${i} <https://a.b/${i}|label ${i}> &amp; 😀`);
  const parts = splitMessage(text.join(' '), 120);
  for (const part of parts) {
    expect(part.length).toBeLessThanOrEqual(120);
    expect(part.replace(/<[^<>]*>|&amp;/g, '')).not.toMatch(/[<>&]/);
    expect(part.isWellFormed()).toBe(true);
  }
  expect(parts.join(' ')).toBe(text.join(' '));
});

it('splitMessage breaks lines without spaces', () => {
  const parts = splitMessage('x'.repeat(1000), 100);
  expect(parts.every(({ length }) => length <= 100)).toBe(true);
  expect(parts.join('')).toBe('x'.repeat(1000));
});
