import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { expect, it, onTestFinished } from 'vitest';
import { expectText, openTab } from './support/browser.js';
import { usePage } from './support/use-page.js';

const { oracle, arrive, write, converse } = usePage();

const box = (page: Page) => page.getByLabel('Your message');
const attached = (page: Page) => page.locator('.files').innerText();

it('a pasted text that is too long for a message is attached as a file, with its end', async () => {
  const { page } = await arrive();
  const text = `${'word '.repeat(60_000)}the end`;
  await page.evaluate((pasted) => navigator.clipboard.writeText(pasted), text);
  await box(page).fill('Summarize this');
  await page.keyboard.press('Control+v');
  await expect.poll(() => attached(page)).toContain('text.txt');
  expect(await box(page).inputValue()).toBe('Summarize this');
  await page.locator('.files progress').waitFor({ state: 'detached' });
  const saved = page.waitForEvent('download');
  await page.keyboard.press('Enter');
  (await oracle.model.next()).answer('Words, and the end');
  await expectText(page, 'Words, and the end');
  await page.locator('.source').click();
  expect(readFileSync(await (await saved).path(), 'utf8')).toBe(text);
});

it('a text with a picture of itself, as Office programs copy it, is pasted as text', async () => {
  const { page } = await arrive();
  const isPrevented = (types: readonly string[]) =>
    box(page).evaluate((element, copied) => {
      const clipboardData = new DataTransfer();
      for (const type of copied) clipboardData.setData(type, 'A1');
      clipboardData.items.add(new File(['x'], 'image.png', { type: 'image/png' }));
      const init = { clipboardData, bubbles: true, cancelable: true };
      return !element.dispatchEvent(new ClipboardEvent('paste', init));
    }, types);
  expect(await isPrevented(['text/plain', 'text/html'])).toBe(false);
  expect(await page.locator('.files').count()).toBe(0);
  // An image of another page, and a file of a file manager.
  expect(await isPrevented(['text/html'])).toBe(true);
  expect(await isPrevented(['text/plain'])).toBe(true);
  await expect.poll(() => attached(page)).toContain('image.png');
});

it('a folder that is dropped says what to do', async () => {
  const { page, context } = await arrive();
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-folder-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const devtools = await context.newCDPSession(page);
  const data = { items: [], files: [folder], dragOperationsMask: 1 };
  // A busy browser may end a drag that the page has not accepted yet.
  await expect
    .poll(async () => {
      for (const type of ['dragEnter', 'dragOver', 'drop'] as const)
        await devtools.send('Input.dispatchDragEvent', { type, x: 600, y: 400, data });
      return page.locator('.files').count();
    })
    .toBe(1);
  await expect.poll(() => attached(page)).toContain('Attach files, not folders.');
  // It would fail again, also with another connection.
  expect(await attached(page)).not.toContain('Retry');
});

it('the key that ends a composition does not send the message, also in Safari', async () => {
  const { page } = await arrive();
  await box(page).fill('かんじ');
  const press = (keyCode: number) =>
    box(page).evaluate((element, code) => {
      const init = { key: 'Enter', keyCode: code, bubbles: true, cancelable: true };
      element.dispatchEvent(new KeyboardEvent('keydown', init));
    }, keyCode);
  await press(229);
  expect(await box(page).inputValue()).toBe('かんじ');
  await press(13);
  (await oracle.model.next()).answer('漢字');
  await expectText(page, '漢字');
});

it('the seconds until the next attempt are not read out one by one', async () => {
  const { page } = await arrive();
  const json = { statusCode: 429, message: 'Too many', error: '', code: 'rate_limited' };
  await page.route('**/sessions', (route) =>
    route.fulfill({ status: 429, json, headers: { 'retry-after': '100' } }),
  );
  await write(page, 'hello');
  const shown = page.locator('.msg-user [role=status] [aria-hidden=true]').last();
  const first = await shown.innerText();
  const announced = page.locator('.msg-user [role=status] .vh');
  const text = await announced.innerText();
  expect(text).toMatch(/\d/);
  await expect.poll(() => shown.innerText()).not.toBe(first);
  expect(await announced.innerText()).toBe(text);
});

it('a first message whose reply was lost starts one conversation', async () => {
  const { page } = await arrive();
  const created: string[] = [];
  await page.route('**/sessions', async (route) => {
    if (route.request().method() !== 'POST') return route.fallback();
    const reply = await route.fetch();
    created.push((await reply.json()).sessionId);
    return created.length === 1 ? route.abort() : route.fulfill({ response: reply });
  });
  await write(page, 'Hello');
  (await oracle.model.next()).answer('Good day');
  await expectText(page, 'Good day');
  expect(created).toEqual([expect.any(String), created[0]]);
  await expect.poll(() => page.locator('.conv').count()).toBe(1);
});

it('a message is sent again although the clock was set back', async () => {
  const { page } = await arrive();
  await page.route('**/sessions', (route) => route.abort());
  await write(page, 'in time');
  await page.locator('.bubble.is-unsent').waitFor();
  await page.evaluate(() => {
    const { now } = Date;
    Date.now = () => now() - 86_400_000;
  });
  await page.unroute('**/sessions');
  (await oracle.model.next()).answer('yes, in time');
  await expectText(page, 'yes, in time');
});

it('each line and paragraph is shown in its own direction', async () => {
  const { page } = await arrive();
  await write(page, 'Translate:');
  (await oracle.model.next()).answer('Here it is:\n\nمرحبا، كيف حالك؟');
  const isAtRight = (text: string) =>
    page.getByText(text).evaluate((element) => {
      const range = document.createRange();
      range.selectNodeContents(element);
      const { right } = element.getBoundingClientRect();
      return right - range.getBoundingClientRect().right < 20;
    });
  await expectText(page, 'كيف حالك');
  await expect.poll(() => isAtRight('كيف حالك')).toBe(true);
  expect(await isAtRight('Here it is')).toBe(false);
});

const report = { name: 'report.txt', mimeType: 'text/plain', buffer: Buffer.from('Rain in Kitui') };

it('an upload that loses the network is tried again when it is back, or when the user asks for it', async () => {
  const { page, context } = await arrive();
  await page.route('**/files*', (route) => route.abort('connectionreset'));
  const files = page.getByLabel('Files', { exact: true });
  await files.setInputFiles([report]);
  await page.locator('.att.is-fault').waitFor();
  await page.unroute('**/files*');
  await page.getByRole('button', { name: 'Retry' }).click();
  await page.getByRole('button', { name: 'Remove report.txt' }).waitFor();
  await expect.poll(() => page.locator('.att.is-fault, .files progress').count()).toBe(0);

  await context.setOffline(true);
  await files.setInputFiles([{ ...report, name: 'second.txt' }]);
  await expect.poll(() => attached(page)).toContain('Waiting for a connection.');
  await context.setOffline(false);
  await expect.poll(() => page.locator('.att.is-fault, .files progress').count()).toBe(0);
  await expect.poll(() => page.locator('.att').count()).toBe(2);
  await write(page, 'Compare them');
  (await oracle.model.next()).answer('They are the same');
  await expect.poll(() => page.locator('.msg-user .source').count()).toBe(2);
});

it('what is typed while the first conversation starts stays in the box, and typing continues at its end', async () => {
  const { page } = await arrive();
  const { promise: opened, resolve: open } = Promise.withResolvers<void>();
  await page.route('**/sessions', async (route) => {
    if (route.request().method() === 'POST') await opened;
    await route.continue();
  });
  await write(page, 'Good morning');
  await box(page).pressSequentially('And one more');
  open();
  (await oracle.model.next()).answer('Good morning to you');
  await expectText(page, 'Good morning to you');
  await expect.poll(() => box(page).inputValue()).toBe('And one more');
  await page.keyboard.type(' thing');
  await page.reload();
  await expectText(page, 'Good morning to you');
  await page.keyboard.type('!');
  await expect.poll(() => box(page).inputValue()).toBe('And one more thing!');
  await page.getByRole('link', { name: 'New conversation' }).click();
  await expect.poll(() => box(page).inputValue()).toBe('');
});

it('a message waits until the user has decided about a file that failed', async () => {
  const { page } = await arrive();
  await page.route('**/files*', (route) =>
    route.fulfill({
      status: 503,
      json: { statusCode: 503, code: 'uploads_full', message: 'Full', error: '' },
    }),
  );
  await page.getByLabel('Files', { exact: true }).setInputFiles([report]);
  await expectText(page, 'Full');
  await write(page, 'Here are my notes');
  await expectText(page, 'To send your message, retry or remove the files that failed.');
  expect(await page.getByLabel('Your message').inputValue()).toBe('Here are my notes');
  await page.unroute('**/files*');
  await page.getByRole('button', { name: 'Retry' }).click();
  await page.getByRole('button', { name: 'Remove report.txt' }).waitFor();
  await page.getByRole('button', { name: 'Send' }).click();
  (await oracle.model.next()).answer('I have read them');
  await expectText(page, 'I have read them');
  await expectText(page, 'report.txt');
});

it('who leaves in the middle of an upload is warned', async () => {
  const { page } = await arrive();
  await page.route('**/files*', () => undefined);
  await page.getByLabel('Files', { exact: true }).setInputFiles([report]);
  await page.getByRole('progressbar', { name: 'report.txt' }).waitFor();
  // The browser asks only those who have used the page.
  await page.getByLabel('Your message').click();
  const asked = page.waitForEvent('dialog');
  await page.close({ runBeforeUnload: true });
  const dialog = await asked;
  expect(dialog.type()).toBe('beforeunload');
  await dialog.dismiss();
  await page.getByRole('link', { name: 'Permissions' }).first().click();
  await expectText(page, '“report.txt” was not uploaded');
  await page.close({ runBeforeUnload: true });
  await expect.poll(() => page.isClosed()).toBe(true);
});

it('a new name is kept while its row moves to another group, and typing continues at its end', async () => {
  const { page, context, consoleErrors } = await arrive();
  await converse(page, 'Which trees grow on clay?', 'Willows do');
  const other = await openTab(context, consoleErrors);
  await other.goto(page.url());
  await other.locator('.conv').hover();
  await page.locator('.conv a').press('F2');
  const field = page.getByLabel('New name');
  await field.fill('Half a');
  await other.getByRole('button', { name: 'More about Which trees' }).click();
  await other.getByRole('menuitem', { name: 'Pin' }).click();
  await page.getByRole('region', { name: 'Pinned' }).getByLabel('New name').waitFor();
  await page.keyboard.type(' name');
  expect(await field.inputValue()).toBe('Half a name');
  await page.keyboard.press('Enter');
  await expect.poll(() => page.locator('.conv').innerText()).toContain('Half a name');
});

it('reasons of the oracle are shown in the language of the user', async () => {
  const { page } = await arrive({ locale: 'de-DE' }, 'Ihre Nachricht');
  await page.route('**/files*', (route) =>
    route.fulfill({
      status: 503,
      json: { statusCode: 503, code: 'uploads_full', message: 'Full', error: '' },
    }),
  );
  await page.getByLabel('Dateien', { exact: true }).setInputFiles([report]);
  await expectText(page, 'Gerade sind es zu viele Anfragen.');
});

it('the first message is visible all the time while its conversation opens', async () => {
  const { page } = await arrive();
  // The page loads what shows a conversation soon after it was opened.
  const findScript = () =>
    page.evaluate(() => {
      const scripts = performance.getEntriesByType('resource').map(({ name }) => name);
      return scripts.find((name) => /\/conversation-[^/]*\.js$/.test(name));
    });
  await expect.poll(findScript).toBeDefined();
  await page.evaluate(`import(${JSON.stringify(await findScript())}).then(() => undefined)`);
  await box(page).fill('Good morning');
  await page.evaluate(() => {
    const isShown = () => document.querySelector('.msg-user') !== null;
    let wasShown = false;
    new MutationObserver(() => {
      if (wasShown && !isShown()) document.body.dataset.wasGone = 'true';
      wasShown ||= isShown();
    }).observe(document.body, { childList: true, subtree: true });
  });
  await page.keyboard.press('Enter');
  (await oracle.model.next()).answer('Good morning to you');
  await expectText(page, 'Good morning to you');
  expect(await page.evaluate(() => document.body.dataset.wasGone)).toBeUndefined();
});
