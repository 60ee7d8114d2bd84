import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { expectText, openTab, SCREENSHOTS } from './support/browser.js';
import { download, findViolations, useSettings } from './support/use-settings.js';

const { oracle, arrive, open, write, converse } = useSettings();
const DAY_MS = 86_400_000;
const PASSPHRASE = 'orbit canvas maple thunder';

const button = (on: Page, name: string | RegExp) => on.getByRole('button', { name });

/** Saves the key as a file and checks it; returns its path. */
async function backUp(on: Page): Promise<string> {
  await open(on, 'key');
  await on.getByRole('textbox', { name: /^Passphrase/ }).fill(PASSPHRASE);
  await on.getByRole('textbox', { name: 'Repeat it' }).fill(PASSPHRASE);
  const path = await download(on, () => button(on, 'Save the file').click());
  await on.getByLabel('The file you just saved').setInputFiles(path);
  await expectText(on, /Your key is backed up/);
  return path;
}

async function addFromFile(on: Page, path: string): Promise<void> {
  await open(on, 'key');
  await button(on, 'Add').click();
  await on.getByLabel('Backup file').setInputFiles(path);
  await on.getByRole('dialog').getByLabel('Passphrase').fill(PASSPHRASE);
  await button(on, 'Add to this browser').click();
  await button(on, 'Switch to it now').click();
}

describe('settings of the page', () => {
  it('a new user backs up the key, opens a second device, grants one permission, approves one action, revokes it', {
    timeout: 600_000,
  }, async () => {
    const { page: laptop, consoleErrors } = await arrive();
    await converse(laptop, 'Good morning', 'Good morning to you');
    const reminder = laptop.getByLabel('Backup reminder');
    await expectText(laptop, 'Your key exists only in this browser');
    await button(laptop, 'Remind me tomorrow').click();
    await expect.poll(() => reminder.count()).toBe(0);
    // A day later it is back, until there is a backup.
    await laptop.evaluate(() =>
      localStorage.setItem('sibyl-backup-reminder', String(Date.now() - 1)),
    );
    await laptop.reload();
    await reminder.waitFor();
    const backup = await backUp(laptop);
    await expect.poll(() => laptop.getByText('Key not backed up').count()).toBe(0);
    await expect.poll(() => reminder.count()).toBe(0);

    const { page: phone } = await arrive(undefined, { width: 390, height: 844 });
    await addFromFile(phone, backup);
    await expect.poll(() => phone.locator('.conv a').count(), { timeout: 60_000 }).toBe(1);

    // The phone is the same user: it grants, the laptop acts.
    await open(phone, 'permissions');
    await expectText(phone, 'Nothing is allowed');
    await expectText(phone, 'The plugin Post office asks for this.');
    expect(await findViolations(phone)).toEqual([]);
    await button(phone, 'Allow for 7 days').click();
    await expectText(phone, /Until .* · Never used/);
    // Narrow: one action, never everything.
    await phone.getByText('Technical details').first().click();
    await expect.poll(() => phone.locator('.perm dt').allTextContents()).toEqual(['letter/send']);

    await laptop.goto(`${oracle.url}/app`);
    await write(laptop, 'Send a letter to Bob');
    const asked = await oracle.model.next();
    asked.call({ name: 'send_letter', input: { to: 'Bob', copies: 2 } });
    await expect
      .poll(() => laptop.getByLabel('1 waiting').count(), { timeout: 60_000 })
      .toBeGreaterThan(0);
    await laptop.getByRole('link', { name: /Approvals/ }).click();
    await expectText(laptop, '1 action is waiting for you');
    await expectText(laptop, 'Bob');
    expect(await findViolations(laptop)).toEqual([]);
    await button(laptop, 'Edit').click();
    await laptop.getByLabel('Copies').fill('1');
    await button(laptop, 'Approve with changes').click();
    const resumed = await oracle.model.next();
    expect(resumed.results.join()).toContain('sent 1 to Bob');
    resumed.answer('Done');
    await expectText(laptop, 'You approved “Send letter”');
    await button(laptop, 'Check it').click();
    await expectText(laptop, 'Signature valid');

    await open(laptop, 'permissions');
    await expectText(laptop, 'Last used just now by Post office');
    await laptop.screenshot({ path: `${SCREENSHOTS}/walk-granted.png` });
    await button(laptop, 'Revoke: Send letters in your name').click();
    await expectText(laptop, 'Nothing is allowed');
    await open(phone, 'activity');
    await expectText(phone, 'Send letter');
    await open(phone, 'permissions');
    await expectText(phone, 'Nothing is allowed');
    expect(consoleErrors).toEqual([]);
  });

  it.each([
    ['behind', -1],
    ['ahead', 1],
  ])(
    'a permission lasts as long as its button says, also if the clock of the device is a day %s',
    async (_, days) => {
      const { page: device } = await arrive();
      await device.clock.setSystemTime(Date.now() + days * DAY_MS);
      await device.reload();
      await converse(device, 'Good morning', 'Good morning to you');
      await expectText(device, 'Today');
      await open(device, 'permissions');
      await device.locator('.perm select').first().selectOption('1');
      await button(device, 'Allow for 1 day').click();
      await expectText(device, /(Ends in 2\d hours|Until .*) · Never used/);
      let expiration = 0;
      await device.route(`${oracle.url}/delegations`, async (route) => {
        const response = await route.fetch();
        const { delegations } = await response.json();
        expiration = delegations[0].expiration;
        await route.fulfill({ response });
      });
      await device.reload();
      await expect.poll(() => expiration).toBeGreaterThan(0);
      expect(Math.abs(expiration * 1000 - Date.now() - DAY_MS)).toBeLessThan(DAY_MS / 24);
    },
  );
});

/** A conversation in two tabs, in which a letter waits for approval. */
async function askInTwoTabs() {
  const visitor = await arrive();
  const { page, context, consoleErrors } = visitor;
  await write(page, 'Write to Ann');
  (await oracle.model.next()).call({ name: 'send_letter', input: { to: 'Ann', copies: 1 } });
  const other = await openTab(context, consoleErrors);
  await page.locator('.approval').waitFor();
  await other.goto(page.url());
  await other.locator('.approval').waitFor();
  return { page, other, context };
}

it('a decision about an approval that another tab has decided says that it does not count', async () => {
  const { page, other, context } = await askInTwoTabs();
  // As if both were clicked at once.
  await other.route('**/approvals?**', (route) => route.abort());
  await page.getByRole('button', { name: 'Approve' }).click();
  (await oracle.model.next()).answer('That is done');
  await expectText(page, 'That is done');
  await context.unrouteAll();
  await other.getByRole('button', { name: 'Deny' }).click();
  await expectText(other, 'This was decided elsewhere or has expired.');
});

it('a conversation that another tab has deleted keeps the draft, and nothing waits for approval in it', async () => {
  const { page, other } = await askInTwoTabs();
  await other.locator('.composer textarea').fill('What I was about to say');
  await expect.poll(() => other.locator('.side .count').innerText()).toBe('1');
  const row = page.locator('.conv').first();
  await row.hover();
  await row.getByRole('button', { name: /^More about/ }).click();
  await page.getByRole('menuitem', { name: /^Delete/ }).click();
  await expectText(other, 'This conversation has been deleted');
  await expect.poll(() => other.locator('.approval').count()).toBe(0);
  await expect.poll(() => other.locator('.side .count').count()).toBe(0);
  expect(await other.locator('.composer textarea').inputValue()).toBe('What I was about to say');
});

it('an approval that another tab has decided disappears while the answer continues', async () => {
  const { page, other } = await askInTwoTabs();
  await page.getByRole('button', { name: 'Approve' }).click();
  const turn = await oracle.model.next();
  turn.say('That is done');
  await expectText(other, 'That is done');
  await expect.poll(() => other.locator('.approval').count()).toBe(0);
  turn.finish();
});

it('shortcuts close the search, but no dialog with something that was typed', async () => {
  const { page } = await arrive('key');
  await page.getByRole('button', { name: 'Add', exact: true }).click();
  const field = page.getByRole('dialog').getByLabel('Passphrase');
  await field.fill('correct horse battery');
  for (const keys of ['Control+k', 'Control+b', 'Control+Shift+O']) await page.keyboard.press(keys);
  expect(await field.inputValue()).toBe('correct horse battery');
  expect(await page.getByRole('dialog').count()).toBe(1);
  expect(page.url()).toContain('#/settings/key');
  await page.getByRole('button', { name: 'Cancel' }).click();
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox').waitFor();
  await page.keyboard.press('Control+Shift+O');
  await page.getByLabel('Your message').waitFor();
  await expect.poll(() => page.getByRole('dialog').count()).toBe(0);
});

it('an import says that it runs, also after the screen was left, and ends if everything is erased', async () => {
  const { page } = await arrive('data');
  const arriving = Promise.withResolvers<void>();
  const poll = { status: 200, body: { id: 'a', status: 'running', bytes: 1, totalBytes: 2 } };
  await page.route('**/me/import', async (route) => {
    await arriving.promise;
    await route.fulfill({ status: 202, json: poll.body });
  });
  await page.route('**/me/import/a', (route) =>
    route.fulfill({ status: poll.status, json: poll.body }),
  );
  const bar = page.getByRole('progressbar', { name: 'Importing' });
  const file = { name: 'archive.zip', mimeType: 'application/zip', buffer: Buffer.from('PK') };
  await page.getByTestId('import').setInputFiles(file);
  await bar.waitFor();
  arriving.resolve();
  await expect.poll(() => bar.getAttribute('value')).toBe('1');
  await page.getByRole('link', { name: 'New conversation' }).click();
  await expect.poll(() => bar.count()).toBe(0);
  await page.goBack();
  await expect.poll(() => bar.getAttribute('value')).toBe('1');
  poll.status = 404;
  await expect.poll(() => bar.count()).toBe(0);
  await expect.poll(() => page.getByRole('button', { name: 'Import' }).isEnabled()).toBe(true);
});

it('an export that breaks off says that the connection is lost', async () => {
  const { page } = await arrive('data');
  await page.addInitScript(() => {
    const { fetch } = window;
    const broken = () =>
      new ReadableStream({
        start: (stream) => stream.enqueue(new Uint8Array(1000)),
        pull: (stream) => stream.error(new TypeError('network error')),
      });
    window.fetch = async (url, init) =>
      String(url).endsWith('/me/export') ? new Response(broken()) : fetch(url, init);
  });
  await page.reload();
  await page.getByRole('button', { name: 'Export' }).click();
  await expectText(page, /^Can’t reach the server/);
  expect(await page.getByText('network error').count()).toBe(0);
});

it('a conversation that takes long to load says so', async () => {
  const { page } = await arrive();
  await converse(page, 'Hello', 'Good day');
  const slow = Promise.withResolvers<void>();
  await page.route('**/sessions/*/messages?**', async (route) => {
    await slow.promise;
    await route.continue();
  });
  await page.reload();
  await page.getByRole('log').getByText('Loading…').waitFor();
  slow.resolve();
  await expectText(page, 'Good day');
  await expect.poll(() => page.getByRole('log').getByText('Loading…').count()).toBe(0);
});

it('Enter in the search accepts what an input method suggests, and opens nothing', async () => {
  const { page } = await arrive('data');
  await page.keyboard.press('Control+k');
  const field = page.getByRole('combobox');
  await field.waitFor();
  const options = { key: 'Enter', bubbles: true, cancelable: true };
  await field.dispatchEvent('keydown', { ...options, isComposing: true });
  expect(await page.getByRole('dialog').count()).toBe(1);
  await field.dispatchEvent('keydown', options);
  await expect.poll(() => page.getByRole('dialog').count()).toBe(0);
});
