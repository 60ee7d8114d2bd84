// What differs in Firefox and Safari, shown in Chromium.
import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { expectText, useBrowser } from './support/browser.js';
import { usePage } from './support/use-page.js';

const { oracle, converse, write } = usePage();
const browser = useBrowser();

/** Removes what Safari 17.0 or Firefox 129 does not have. */
function removeNewFunctions(): void {
  const remove = (from: object, ...names: string[]) => {
    for (const name of names) Reflect.deleteProperty(from, name);
  };
  remove(URL, 'parse');
  remove(Map, 'groupBy');
  remove(Object, 'groupBy');
  remove(AbortSignal, 'any');
  remove(Promise, 'withResolvers', 'try');
  remove(Array, 'fromAsync');
  remove(RegExp, 'escape');
  remove(Uint8Array, 'fromBase64', 'fromHex');
  remove(Uint8Array.prototype, 'toBase64', 'toHex', 'setFromBase64');
  remove(Set.prototype, 'union', 'intersection', 'difference', 'isSubsetOf', 'isDisjointFrom');
  remove(Object.getPrototypeOf(Object.getPrototypeOf([].values())), 'map', 'filter', 'toArray');
  remove(ReadableStream.prototype, 'values');
  Reflect.deleteProperty(ReadableStream.prototype, Symbol.asyncIterator);
  remove(globalThis, 'requestIdleCallback', 'scheduler', 'Iterator', 'showSaveFilePicker');
}

const ANSWER = 'Look: ![A river](https://pictures.example/river.png)\n\nThat is all.';

it('works without functions that Safari 17 does not have', async () => {
  const { page, consoleErrors } = await browser.visit();
  await page.addInitScript(removeNewFunctions);
  await page.goto(`${oracle.url}/app`);
  await write(page, 'Hello');
  const turn = await oracle.model.next();
  turn.say(ANSWER);
  await page.getByRole('button', { name: /pictures\.example/ }).waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await turn.left;
  await expectText(page, 'Answer stopped');
  await expect.poll(() => page.locator('.conv').count()).toBe(1);
  await converse(page, 'And now?', 'Fine');
  for (const screen of ['activity', 'data', 'key']) {
    await page.evaluate((hash) => {
      location.hash = hash;
    }, `#/settings/${screen}`);
    await page.locator('.page h1').waitFor();
  }
  expect(consoleErrors).toEqual([]);
});

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

const measureRest = (page: Page): Promise<number> =>
  page
    .locator('.scroll')
    .evaluate((log) => Math.round(log.scrollHeight - log.scrollTop - log.clientHeight));

/** The thread is shorter for a moment and has grown before the browser reports a scroll, as diagrams do in WebKit. */
const shrinkAndGrow = (page: Page): Promise<void> =>
  page.locator('.thread').evaluate((thread) => {
    const { style, offsetHeight } = thread as HTMLElement;
    style.marginTop = '-120px';
    void thread.parentElement?.scrollHeight;
    style.marginTop = '';
    style.minHeight = `${offsetHeight + 80}px`;
  });

it('follows the answer while its parts change their height; a key still stops it', async () => {
  const { page } = await browser.visit();
  await page.goto(`${oracle.url}/app`);
  await write(page, 'Write a long story');
  const turn = await oracle.model.next();
  turn.say('A long line of text.\n\n'.repeat(60));
  await expectText(page, 'A long line');
  const jump = page.getByRole('button', { name: 'Jump to latest' });
  for (let round = 0; round < 3; round += 1) {
    await expect.poll(() => measureRest(page)).toBeLessThanOrEqual(4);
    await shrinkAndGrow(page);
    await expect.poll(() => measureRest(page)).toBeLessThanOrEqual(4);
    expect(await jump.count()).toBe(0);
  }
  await page.locator('.scroll').focus();
  await page.keyboard.press('PageUp');
  await jump.waitFor();
  turn.say('More text.\n\n'.repeat(20));
  await expectText(page, 'More text');
  expect(await measureRest(page)).toBeGreaterThan(100);
  await shrinkAndGrow(page);
  await page.waitForTimeout(200);
  expect(await jump.count()).toBe(1);
  await jump.click();
  await expect.poll(() => measureRest(page)).toBeLessThanOrEqual(4);
  turn.answer('The end.');
  await expect.poll(() => jump.count()).toBe(0);
});

it('in Arabic, an empty message box has one direction, or else Firefox shows no placeholder', async () => {
  const { page } = await browser.visit({ locale: 'ar' });
  await page.goto(`${oracle.url}/app`);
  const box = page.locator('.composer textarea');
  const readStyle = () =>
    box.evaluate((each) => {
      const { direction, unicodeBidi } = getComputedStyle(each);
      return [direction, unicodeBidi];
    });
  await expect.poll(readStyle).toEqual(['rtl', 'isolate']);
  // Each line of a text has its own.
  await box.fill('Hello\nمرحبا');
  await expect.poll(readStyle).toEqual(['ltr', 'plaintext']);
});
