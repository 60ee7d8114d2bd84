// What differs in Firefox and Safari, shown in Chromium.
import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { useBrowser } from './support/browser.js';
import { usePage } from './support/use-page.js';

const { oracle } = usePage();
const browser = useBrowser();

const measureBox = (page: Page): Promise<number> =>
  page.getByLabel('Your message').evaluate((box) => box.getBoundingClientRect().height);

it('without field-sizing, the message box grows and shrinks with its text', async () => {
  const { page } = await browser.visit();
  await page.addInitScript(() => {
    const { supports } = CSS;
    CSS.supports = (name: string, value?: string) =>
      name !== 'field-sizing' && supports(name, value ?? '');
    const sheet = new CSSStyleSheet();
    sheet.replaceSync('textarea { field-sizing: fixed !important }');
    document.adoptedStyleSheets.push(sheet);
  });
  await page.goto(`${oracle.url}/app`);
  const box = page.getByLabel('Your message');
  await box.waitFor();
  const empty = await measureBox(page);
  await box.fill('one\ntwo\nthree\nfour');
  await expect.poll(() => measureBox(page)).toBeGreaterThan(empty + 40);
  const four = await measureBox(page);
  expect(await box.evaluate((each) => each.scrollHeight - each.clientHeight)).toBe(0);
  await page.reload();
  await expect.poll(() => measureBox(page)).toBe(four);
  // Lines that no longer fit are wrapped.
  await box.fill('word '.repeat(30));
  const wide = await measureBox(page);
  await page.setViewportSize({ width: 320, height: 800 });
  await expect.poll(() => measureBox(page)).toBeGreaterThan(wide + 40);
  await page.keyboard.press('Enter');
  (await oracle.model.next()).answer('Fine');
  await expect.poll(() => measureBox(page)).toBe(empty);
});
