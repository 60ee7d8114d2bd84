import { Marked } from 'marked';
import { expect, it, onTestFinished, vi } from 'vitest';
import { readAnswer, renderText } from './chat-render.js';

const schema = {
  type: 'object',
  properties: { name: { type: 'string' }, places: { type: 'integer' }, site: { type: 'string' } },
};

it('readAnswer reads a line for each field', () => {
  const text = ' Name : Ada\nplaces:2\nsite: https://ixo.world\nother: 1\nname';
  expect(readAnswer({ schema }, text)).toEqual({
    name: 'Ada',
    places: 2,
    site: 'https://ixo.world',
  });
});

it('readAnswer looks a line up among many fields without comparing it with each', () => {
  const names = Array.from({ length: 50 }, (_, i) => `field${i}`);
  const properties = Object.fromEntries(names.map((name) => [name, { type: 'string' }]));
  const lowerCase = vi.spyOn(String.prototype, 'toLowerCase');
  onTestFinished(() => lowerCase.mockRestore());
  const answer = readAnswer({ schema: { properties } }, `${'a: b\n'.repeat(1000)}field49: c`);
  const { length } = lowerCase.mock.calls;
  lowerCase.mockRestore();
  expect(answer).toEqual({ field49: 'c' });
  expect(length).toBeLessThan(2000);
});

it('readAnswer reads long lines of spaces in no time', () => {
  const spaces = ' '.repeat(20_000);
  expect(readAnswer({ schema }, `x\n${spaces}\nname: Ada`)).toEqual({ name: 'Ada' });
});

const renderHtml = (markdown: string) => [...renderText(markdown)][0]?.formatted_body;

it.each([
  '[x](javascript:alert(1))',
  '[x](JavaScript&colon;alert(1))',
  '[x](data:text/html,<b>y</b>)',
  '<javascript:alert(1)>',
  '[x](vbscript:y "title")',
])('renderText shows a link that runs code as text: %s', (markdown) => {
  expect(renderHtml(markdown)).toMatch(/^<p>[^<>]*<\/p>$/);
});

it.each(['https://a.b/c_(d)?e=1', 'mailto:a@b.c', 'matrix:u/a:b.c'])(
  'renderText shows a link to %s',
  (address) => {
    expect(renderHtml(`[x](${address})`)).toBe(`<p><a href="${address}">x</a></p>`);
  },
);

it('renderText shows what is done in a list without inputs', () => {
  const html = renderHtml('- [x] one\n- [ ] two');
  expect(html).toContain('☑ one');
  expect(html).toContain('☐ two');
  expect(html).not.toContain('<input');
});

it.each(['>', '1. ', '> - '])('renderText shows a text of very many %s as it is', (mark) => {
  const text = mark.repeat(5000).trim();
  const contents = [...renderText(text)];
  expect(
    contents
      .map(({ body }) => body)
      .join('')
      .replaceAll('\n', ''),
  ).toBe(text);
});

it.each(['*a_', '***', '**a_', '- '])(
  'renderText shows a text of very many %s soon',
  { timeout: 10_000 },
  (mark) => {
    const text = `a${mark.repeat(500_000 / mark.length)}z`;
    const started = performance.now();
    const shown = [...renderText(text)].map(({ body }) => body);
    expect(performance.now() - started).toBeLessThan(5000);
    expect(shown.join('').replaceAll('\n', '') === text).toBe(true);
  },
);

it.each([
  '~a[ ',
  '~~a[ ',
  '~a| ',
  '*1\t)',
  '*~ &',
  '_~a ',
  '[a](b ',
  '- -  ',
  '1)   ',
  '>\t',
  ' ',
  'a!',
])('renderText shows a text of many %j as it is', (marks) => {
  const text = `a\n\n${marks.repeat(7900 / marks.length)}z`;
  expect([...renderText(text)]).toHaveLength(1);
  expect(renderHtml(text)).toBeUndefined();
});

it('renderText formats a long list with much emphasis', () => {
  const text = '- **Name**: a *short* description with ~~a mistake~~ and `code`\n'.repeat(240);
  expect(renderHtml(text)).toContain('<li><strong>Name</strong>: a <em>short</em>');
});

it('renderText formats a long text with much emphasis', () => {
  const text = '**Name**: a *short* description with __emphasis__\n\n'.repeat(250);
  expect(renderHtml(text)).toContain('<strong>Name</strong>');
});

it('renderText renders one event at a time, and none of those that are sent already', () => {
  const text = Array.from({ length: 5000 }, (_, i) => `**line** ${i}`).join('\n');
  const all = [...renderText(text)];
  expect(all.length).toBeGreaterThan(3);
  expect([...renderText(text, 2)]).toEqual(all.slice(2));
  const use = vi.spyOn(Marked.prototype, 'use');
  onTestFinished(() => use.mockRestore());
  const { value: third } = renderText(text, 2).next();
  expect(third).toEqual(all[2]);
  expect(use).toHaveBeenCalledOnce();
});
