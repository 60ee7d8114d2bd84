import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { expectText } from './support/browser.js';
import { usePage } from './support/use-page.js';

const { oracle, arrive, write, converse } = usePage();

const SCRIPTS = [
  '<script>window.pwned = 1</script>',
  '<img src=x onerror="window.pwned = 1">',
  '<svg onload="window.pwned = 1">',
  '[click](javascript:window.pwned=1)',
  '![see](javascript:window.pwned=1)',
  '<javascript:window.pwned=1>',
  '[a]: javascript:window.pwned=1',
  '"><iframe srcdoc="<script>parent.pwned=1</script>">',
  '```"><script>window.pwned=1</script>\ncode\n```',
].join('\n\n');

const hasNoScripts = (page: Page) =>
  page.evaluate(
    () => !('pwned' in window) && document.querySelector('iframe, script:not([src])') === null,
  );

it('the page runs no script from messages, titles, tool calls or their results', async () => {
  const { page, consoleErrors } = await arrive();
  await write(page, SCRIPTS);
  const input = { title: SCRIPTS, columns: [SCRIPTS], rows: [[SCRIPTS]] };
  (await oracle.model.next()).call(
    { name: 'show_table', input },
    { name: '<script>', input: { a: SCRIPTS } },
    { name: 'remember', input: { fact: SCRIPTS.slice(0, 900) } },
  );
  const after = await oracle.model.next();
  after.think(SCRIPTS);
  after.say(SCRIPTS);
  after.say('\n\nThat was all');
  after.finish();
  await expectText(page, 'That was all');
  for (const summary of await page.locator('summary').all()) await summary.click();
  const row = page.locator('.conv').first();
  await row.getByRole('button', { name: /^More about/ }).click();
  await page.getByRole('menuitem', { name: /^Rename/ }).click();
  await page.getByLabel('New name').fill(SCRIPTS.slice(0, 200));
  await page.keyboard.press('Enter');
  await expect.poll(() => row.textContent()).toContain('<script>');
  expect(await hasNoScripts(page)).toBe(true);
  const addresses = await page
    .locator('.thread a')
    .evaluateAll((links) => links.map((link) => link.getAttribute('href')));
  expect(addresses.join()).not.toMatch(/script:/i);
  expect(consoleErrors).toEqual([]);
});

it('the page survives unexpected arguments and pathological Markdown', async () => {
  const { page } = await arrive();
  await write(page, 'Show me');
  (await oracle.model.next()).call(
    {
      name: 'show_form',
      input: { title: 'Odd', fields: [{ name: 'a', label: 'A', choices: 'x' }] },
    },
    { name: 'show_chart', input: { points: [{ label: { toString: 1 }, value: 1 }] } },
  );
  (await oracle.model.next()).answer(
    `${'>'.repeat(20_000)}deep\n\n${'*'.repeat(20_000)}\n\n${'1. '.repeat(3000)}`,
  );
  await expectText(page, 'Show me');
  await converse(page, 'Are you still there?', 'Still here');
  await page.reload();
  await expectText(page, 'Still here');
});

it('a formula that defines commands is shown as it is written', async () => {
  const { page } = await arrive();
  await write(page, 'Calculate');
  const repeat = `\\def\\a#1{${'#1'.repeat(2400)}}\\a{${'x'.repeat(4700)}}`;
  const formulas = [repeat, '\\newcommand{\\b}{x}\\b', 'a \\\\ \\delta'];
  (await oracle.model.next()).answer(formulas.map((tex) => `$$\n${tex}\n$$`).join('\n\n'));
  await page.locator('math').waitFor({ timeout: 20_000 });
  expect(await page.locator('math').count()).toBe(1);
  await expectText(page, '\\newcommand');
});

it('a diagram with very many parts is shown as it is written', async () => {
  const { page } = await arrive();
  await write(page, 'Draw');
  const parts = Array.from({ length: 4000 }, (_, i) => `n${i}`);
  const diagrams = [parts.join('\n'), parts.join(';'), parts.join(' & '), 'A --> Last'];
  (await oracle.model.next()).answer(
    diagrams.map((code) => `\`\`\`mermaid\nflowchart TD\n${code}\n\`\`\``).join('\n\n'),
  );
  await page.getByRole('img', { name: /Last/ }).waitFor({ timeout: 20_000 });
  expect(await page.locator('figure.block').count()).toBe(1);
});

it('a chart or form with invalid arguments is not shown, only the one that the model corrects', async () => {
  const { page } = await arrive();
  await write(page, 'Show me');
  const chart = { title: 'Rain', kind: 'bar' };
  const form = { title: 'Site' };
  (await oracle.model.next()).call(
    { name: 'show_chart', input: { ...chart, points: [{ label: 'Kitui', value: '12' }] } },
    { name: 'show_form', input: { ...form, fields: [{ name: 'site' }] } },
  );
  const fields = [{ name: 'site', label: 'Site', kind: 'text' }];
  (await oracle.model.next()).call(
    { name: 'show_chart', input: { ...chart, points: [{ label: 'Kitui', value: 12 }] } },
    { name: 'show_form', input: { ...form, fields } },
  );
  (await oracle.model.next()).answer('Here it is');
  await expectText(page, 'Here it is');
  for (const shown of ['figure.chart', 'form.card']) {
    await page.locator(shown).first().waitFor();
    expect(await page.locator(shown).count()).toBe(1);
  }
  expect(await page.getByText('Couldn’t use').count()).toBe(2);
});

it('forms, charts and tables with long words and choices fit into a narrow window', async () => {
  const { page } = await arrive({ width: 320 });
  await write(page, 'Show me');
  const word = 'Rain'.repeat(50);
  const choices = ['Plant in the first week of April if the rains start early, otherwise later'];
  const fields = [
    { name: 'plan', label: 'When do you want to plant, and how much?', kind: 'choice', choices },
    { name: 'word', label: word, kind: 'text' },
  ];
  const points = [{ label: word, value: 1 }];
  (await oracle.model.next()).call(
    { name: 'show_form', input: { title: word, fields } },
    { name: 'show_chart', input: { title: word, kind: 'bar', unit: word, points } },
    { name: 'show_table', input: { title: word, columns: ['Site'], rows: [['Kitui']] } },
  );
  (await oracle.model.next()).answer('Here it is');
  for (const shown of ['form.card', 'figure.chart', '.part table'])
    await page.locator(shown).waitFor();
  const wide = await page
    .locator('.part :is(form *, figcaption, figcaption *)')
    .evaluateAll((all) => all.filter((each) => each.getBoundingClientRect().right > innerWidth));
  expect(wide).toEqual([]);
});

it('the page loads no images in diagrams from third parties', async () => {
  const { page } = await arrive();
  const addresses = new Set<string>();
  page.on('request', (request) => addresses.add(request.url()));
  const image = 'https://spy.example';
  const html = `A["<img src=${image}/label>"] --> B`;
  const diagrams = [
    `%%{init: {"htmlLabels": true, "flowchart": {"htmlLabels": true}}}%%\nflowchart TD\n${html}`,
    `---\nconfig:\n  htmlLabels: true\n---\nflowchart TD\n${html}`,
    `flowchart TD\nA@{ img: "${image}/node", label: "x", h: 60, w: 60 }`,
    `flowchart TD\nA@{ "\\x69mg": "${image}/escaped", label: "x", h: 60, w: 60 }`,
    `sequenceDiagram\nparticipant A\nproperties A: {"icon": "${image}/icon"}\nA->>A: hi`,
    'flowchart TD\nA --> Last',
  ];
  await write(page, 'Draw');
  (await oracle.model.next()).answer(
    diagrams.map((code) => `\`\`\`mermaid\n${code}\n\`\`\``).join('\n\n'),
  );
  // Those without images of nodes are drawn one after the other; the others stay as they are.
  await page.getByRole('img', { name: /Last/ }).waitFor();
  expect([...addresses].filter((address) => address.startsWith(image))).toEqual([]);
  await expect.poll(() => page.locator('figure.block').count()).toBe(3);
});

it('links and footnotes find what they refer to, and unsafe links are text', async () => {
  const { page } = await arrive();
  const text = 'A [guide][g], a note[^1] and a [trap](javascript:1).';
  await write(page, 'Hello');
  (await oracle.model.next()).answer(
    `${text}\n\nMore text\n\n[g]: https://a.example/g\n[^1]: The note`,
  );
  await expectText(page, 'The note');
  const address = page.url();
  const guide = page.getByRole('link', { name: 'guide' });
  await expect.poll(() => guide.getAttribute('href')).toBe('https://a.example/g');
  expect(await page.getByRole('link', { name: 'trap' }).count()).toBe(0);
  await page.getByRole('link', { name: '1', exact: true }).click();
  expect([page.url(), page.context().pages().length]).toEqual([address, 1]);
});

it('characters that reorder text are visible in code, tool calls and their results', async () => {
  const { page } = await arrive();
  await write(page, 'Check who is an admin');
  const hidden = 'user\u202e \u2066// admins only\u2069 \u2066';
  (await oracle.model.next()).call({ name: 'remember', input: { fact: hidden } });
  const code = `if (level != "${hidden}") {`;
  (await oracle.model.next()).answer(
    `Inline \`${code}\`\n\n\`\`\`js\n${code}\n\`\`\`\n\n\`\`\`\n${code}\n\`\`\`\n\nThat was all`,
  );
  await expectText(page, 'That was all');
  const shown = 'user[U+202E] [U+2066]// admins only[U+2069] [U+2066]';
  const blocks = page.locator('.prose code');
  await expect.poll(() => blocks.count()).toBe(3);
  await page.locator('.hljs-string').first().waitFor();
  for (const text of await blocks.allTextContents()) expect(text).toContain(shown);
  await page.locator('.tool summary').first().click();
  await expect.poll(() => page.locator('.tool dd').nth(1).textContent()).toBe(shown);
  // What is copied is what the model wrote.
  await page.getByRole('button', { name: 'Copy code' }).first().click();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(code);
});
