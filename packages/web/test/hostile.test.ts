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
