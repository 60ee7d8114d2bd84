import { exportPrivateKey, generateSigner } from '@sibyl/ucan';
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { expectText, openTab } from './support/browser.js';
import { useSettings } from './support/use-settings.js';

const { oracle, arrive, open, write } = useSettings();

const button = (on: Page, name: string | RegExp) => on.getByRole('button', { name });

const listDrafts = (page: Page): Promise<string[]> =>
  page.evaluate(() => Object.keys(localStorage).filter((key) => /^sibyl-(draft|form):/.test(key)));

async function addIdentity(page: Page, key: string): Promise<void> {
  await page.getByRole('button', { name: 'Add', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('radio', { name: /24 words/ }).check();
  await dialog.getByRole('textbox').first().fill(key);
  await button(page, 'Add to this browser').click();
}

/** Lets the model show a form with one field. */
async function showForm(page: Page): Promise<void> {
  await write(page, 'Plan a trip');
  const fields = [{ name: 'city', label: 'City', kind: 'text' }];
  (await oracle.model.next()).call({ name: 'show_form', input: { title: 'Your trip', fields } });
  (await oracle.model.next()).answer('Please fill it in');
  await expectText(page, 'Please fill it in');
}

describe('what was typed into a form survives a visit to another screen and a reload', () => {
  it('of a new schedule, until it is created', async () => {
    const { page } = await arrive('schedules');
    const message = page.getByLabel(/What should .* do\?/);
    await button(page, 'New schedule').click();
    await message.fill('Summarize the news');
    await page.getByLabel('When').selectOption('Every week');
    await page.getByRole('combobox', { name: /^Day/ }).selectOption('Friday');
    await page.getByRole('link', { name: 'Files' }).click();
    await page.getByRole('heading', { name: 'Files', level: 1 }).waitFor();
    await page.goBack();
    await expect.poll(() => message.inputValue()).toBe('Summarize the news');
    await page.reload();
    await expect.poll(() => message.inputValue()).toBe('Summarize the news');
    expect(await page.getByRole('combobox', { name: /^Day/ }).inputValue()).toBe('5');
    await button(page, 'Sign and create').click();
    await expectText(page, /Friday at/);
    expect(await listDrafts(page)).toEqual([]);
    await button(page, 'New schedule').click();
    expect(await message.inputValue()).toBe('');
  });

  it('of an access key and another permission, until the user cancels', async () => {
    const { page } = await arrive('permissions');
    await button(page, 'New access key').click();
    await page.getByLabel('What is it for?').fill('Dashboard');
    await page.getByText('Another permission, for developers').click();
    await page.getByLabel('Action', { exact: true }).fill('store/add');
    await open(page, 'usage');
    await open(page, 'permissions');
    await expect.poll(() => page.getByLabel('What is it for?').inputValue()).toBe('Dashboard');
    const action = page.getByLabel('Action', { exact: true });
    await expect.poll(() => action.isVisible()).toBe(true);
    expect(await action.inputValue()).toBe('store/add');
    await button(page, 'Cancel').click();
    await action.fill('');
    await open(page, 'usage');
    await open(page, 'permissions');
    await button(page, 'New access key').waitFor();
    expect(await page.getByLabel('What is it for?').count()).toBe(0);
    expect(await listDrafts(page)).toEqual([]);
  });

  it('of rules that are not signed', async () => {
    const { page } = await arrive('permissions');
    const rule = page.getByRole('group', { name: 'Rule for Post office' });
    await rule.getByLabel('Block').check({ force: true });
    await open(page, 'usage');
    await open(page, 'permissions');
    await expectText(page, '1 change not signed yet');
    await button(page, 'Undo').click();
    await expect.poll(() => rule.getByLabel('Allow').isChecked()).toBe(true);
    expect(await listDrafts(page)).toEqual([]);
  });

  it('of facts and preferences', async () => {
    const { page } = await arrive('memory');
    const fact = page.getByLabel('Fact', { exact: true });
    await button(page, 'Add a fact').click();
    await fact.fill('Works in Kitui');
    await button(page, 'Save').click();
    await button(page, 'Edit: Works in Kitui').click();
    await fact.fill('Works in Nairobi');
    await open(page, 'preferences');
    await page.getByLabel('What to call you').fill('Sam');
    await open(page, 'memory');
    await expect.poll(() => fact.inputValue()).toBe('Works in Nairobi');
    await button(page, 'Save').click();
    await button(page, 'Edit: Works in Nairobi').waitFor();
    await open(page, 'preferences');
    await expect.poll(() => page.getByLabel('What to call you').inputValue()).toBe('Sam');
    await button(page, 'Save').click();
    await page.getByText('Saved').waitFor();
    expect(await listDrafts(page)).toEqual([]);
  });

  it('of the name of an identity', async () => {
    const { page } = await arrive('key');
    await button(page, 'More for You').click();
    await page.getByRole('menuitem', { name: 'Rename' }).click();
    await page.getByLabel('Name').fill('Field office');
    await open(page, 'usage');
    await open(page, 'key');
    await expect.poll(() => page.getByLabel('Name').inputValue()).toBe('Field office');
    await page.getByLabel('Name').press('Enter');
    await page.locator('.rows b', { hasText: 'Field office' }).waitFor();
    expect(await listDrafts(page)).toEqual([]);
  });

  it('of a form that the model has shown, and of a comment on its answer', async () => {
    const { page } = await arrive();
    await showForm(page);
    await page.getByLabel('City').fill('Kitui');
    await button(page, 'Good answer').click();
    const comment = page.getByLabel(/^What was good/);
    await comment.fill('Very clear');
    await page.keyboard.press('Escape');
    await page.getByRole('link', { name: 'New conversation' }).click();
    await page.locator('.conv a').click();
    await expect.poll(() => page.getByLabel('City').inputValue()).toBe('Kitui');
    await button(page, 'Good answer').click();
    await expect.poll(() => comment.inputValue()).toBe('Very clear');
    await button(page, 'Close').click();
    await page.getByRole('form', { name: 'Your trip' }).getByRole('button').click();
    (await oracle.model.next()).answer('Kitui it is');
    await expectText(page, 'Kitui it is');
    expect(await page.getByLabel('City').inputValue()).toBe('Kitui');
    expect(await listDrafts(page)).toEqual([]);
  });
});

describe('the draft of a form', () => {
  it('does not appear in another conversation, also if the provider numbers its calls in the same way', async () => {
    const { page } = await arrive();
    await showForm(page);
    await page.getByLabel('City').fill('Kitui');
    await page.getByRole('link', { name: 'New conversation' }).click();
    await showForm(page);
    expect(await page.getByLabel('City').inputValue()).toBe('');
    await page.locator('.conv a').last().click();
    await expect.poll(() => page.getByLabel('City').inputValue()).toBe('Kitui');
  });

  it('is not a message that was typed at the address of a conversation with its name', async () => {
    const { page } = await arrive();
    await page.goto(`${oracle.url}/app#/s/preferences`);
    await page.locator('.composer textarea').fill('hello there');
    await open(page, 'preferences');
    const name = page.getByLabel('What to call you');
    expect(await name.inputValue()).toBe('');
    for (const text of ['hello there', '7', 'null', '["a"]']) {
      await name.fill('Sam');
      await page.evaluate((draft) => {
        const key = Object.keys(localStorage).find((each) => each.startsWith('sibyl-form:')) ?? '';
        localStorage.setItem(key, JSON.stringify({ text: draft }));
      }, text);
      await page.reload();
      await expect.poll(() => name.inputValue()).toBe('');
    }
  });

  it('stays when the user cancels the same form in another tab, but not their own', async () => {
    const { page, context, consoleErrors } = await arrive('schedules');
    const other = await openTab(context, consoleErrors);
    await other.goto(page.url());
    const find = (tab: Page) => tab.getByLabel(/What should .* do\?/);
    const [message, copy] = [find(page), find(other)];
    for (const tab of [page, other]) await button(tab, 'New schedule').click();
    await message.fill('Summarize the news');
    await button(other, 'Cancel').click();
    await page.reload();
    await expect.poll(() => message.inputValue()).toBe('Summarize the news');
    // What both have typed.
    await message.fill('Summarize the weather');
    await button(other, 'New schedule').click();
    await copy.fill('Water the garden');
    await button(other, 'Cancel').click();
    expect(await listDrafts(page)).toEqual([]);
    await page.reload();
    await expect.poll(() => message.inputValue()).toBe('Summarize the weather');
    await button(page, 'Cancel').click();
    await page.reload();
    await button(page, 'New schedule').waitFor();
    expect(await message.count()).toBe(0);
    expect(await listDrafts(page)).toEqual([]);
  });

  it('of a fact is removed as soon as the fact is stored, before the list is loaded again', async () => {
    const { page } = await arrive('memory');
    const fact = page.getByLabel('Fact', { exact: true });
    const store = async (text: string) => {
      await fact.fill(text);
      // Without an answer.
      await page.route('**/memory?*', () => undefined);
      await button(page, 'Save').click();
      await expect.poll(() => listDrafts(page)).toEqual([]);
      await page.unroute('**/memory?*');
      await page.reload();
      await page.getByText(text).waitFor();
      expect(await fact.count()).toBe(0);
    };
    await button(page, 'Add a fact').click();
    await store('Works in Kitui');
    await button(page, 'Edit: Works in Kitui').click();
    await store('Works in Nairobi');
  });

  it('is removed when everything is as it was before', async () => {
    const { page } = await arrive();
    await showForm(page);
    await page.getByLabel('City').fill('Kitui');
    expect(await listDrafts(page)).toHaveLength(1);
    await page.getByLabel('City').fill('');
    expect(await listDrafts(page)).toEqual([]);
    await open(page, 'permissions');
    const rule = page.getByRole('group', { name: 'Rule for Post office' });
    await rule.getByLabel('Block').check({ force: true });
    expect(await listDrafts(page)).toHaveLength(1);
    await rule.getByLabel('Allow').check({ force: true });
    expect(await listDrafts(page)).toEqual([]);
  });

  it('is removed with its identity', async () => {
    const { page } = await arrive('key');
    await addIdentity(page, exportPrivateKey(generateSigner()));
    await Promise.all([page.waitForEvent('load'), button(page, 'Switch to it now').click()]);
    await page.locator('.composer textarea').fill('Half a message');
    await open(page, 'preferences');
    await page.getByLabel('What to call you').fill('Sam');
    expect(await listDrafts(page)).toHaveLength(2);
    await open(page, 'key');
    const switching = page.waitForEvent('load');
    await button(page, 'Switch').click();
    await switching;
    await open(page, 'key');
    // The imported one has a backup.
    const more = page
      .locator('.rows li', { hasText: 'Switch' })
      .getByRole('button', { name: /^More/ });
    await more.click();
    await page.getByRole('menuitem', { name: 'Rename' }).click();
    await page.getByLabel('Name of this identity').fill('Field office');
    await expect.poll(() => listDrafts(page)).toHaveLength(3);
    await more.click();
    await page.getByRole('menuitem', { name: 'Remove' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
    await expect.poll(() => page.locator('.rows .avatar').count()).toBe(1);
    expect(await listDrafts(page)).toEqual([]);
  });
});

describe('a secret that was typed', () => {
  it('is not stored; who leaves the screen is asked first', async () => {
    const { page } = await arrive('usage');
    await open(page, 'key');
    await button(page, 'Add').click();
    const dialog = page.getByRole('dialog', { name: 'Add an identity' });
    await dialog.getByRole('radio', { name: /24 words/ }).check();
    const words = dialog.getByLabel(/Your 24 words/);
    await words.fill('orbit canvas maple');
    await page.goBack();
    const question = page.getByRole('dialog', { name: 'Leave without finishing?' });
    await question.getByRole('button', { name: 'Cancel' }).click();
    expect(await words.inputValue()).toBe('orbit canvas maple');
    expect(page.url()).toContain('#/settings/key');
    await page.evaluate(() => {
      location.hash = '#/settings/usage';
    });
    await question.waitFor();
    await page.keyboard.press('Escape');
    await expect.poll(() => question.count()).toBe(0);
    expect(await words.inputValue()).toBe('orbit canvas maple');
    expect(await page.evaluate(() => JSON.stringify(localStorage))).not.toContain('orbit');
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await open(page, 'usage');
    await page.getByRole('heading', { name: 'Usage', level: 1 }).waitFor();
  });
});

describe('adding an identity', () => {
  it('that is in use says so, and so does one that the browser had before', async () => {
    const { page } = await arrive('key');
    const key = exportPrivateKey(generateSigner());
    const add = () => addIdentity(page, key);
    await add();
    await page.getByRole('dialog', { name: 'Identity added' }).waitFor();
    await button(page, 'Stay with the current one').click();
    await add();
    await page.getByRole('dialog', { name: /was already in this browser/ }).waitFor();
    await Promise.all([page.waitForEvent('load'), button(page, 'Switch to it now').click()]);
    await page.locator('main.main').waitFor();
    await open(page, 'key');
    await add();
    const dialog = page.getByRole('dialog', { name: 'This identity is already in use' });
    await dialog.getByRole('button', { name: 'Close' }).last().click();
    await expect.poll(() => page.locator('.rows .avatar').count()).toBe(2);
  });
});

describe('the draft of an approval', () => {
  /** A page with an approval for whose reason the user has typed something. */
  const typeReason = async () => {
    const visitor = await arrive();
    const { page } = visitor;
    await write(page, 'Write to Bob');
    (await oracle.model.next()).call({ name: 'send_letter', input: { to: 'Bob', copies: 2 } });
    await page.getByLabel(/^Reason/).fill('Not today');
    await expect.poll(() => listDrafts(page)).toHaveLength(1);
    return visitor;
  };

  it('is removed when the user decides in another tab, where they have typed something else', async () => {
    const { page, context, consoleErrors } = await typeReason();
    const other = await openTab(context, consoleErrors);
    await other.goto(page.url());
    await expect.poll(() => other.getByLabel(/^Reason/).inputValue()).toBe('Not today');
    await other.getByLabel(/^Reason/).fill('Never');
    await button(page, 'Deny').click();
    (await oracle.model.next()).answer('As you wish');
    await expectText(other, 'As you wish');
    await expect.poll(() => other.locator('.approval').count()).toBe(0);
    await expect.poll(() => listDrafts(page)).toEqual([]);
  });

  it('is removed when the page learns later that the turn has ended, and kept as long as it waits', async () => {
    const { page } = await typeReason();
    await page.reload();
    await expect.poll(() => page.getByLabel(/^Reason/).inputValue()).toBe('Not today');
    await page.locator('.conv .badge').waitFor();
    expect(await listDrafts(page)).toHaveLength(1);
    const request = page.waitForRequest('**/sessions?*');
    await page.reload();
    const { authorization = '' } = (await request).headers();
    const sessionId = page.url().split('/').at(-1);
    await page.goto('about:blank');
    const headers = { 'x-auth-type': 'ucan', 'content-type': 'application/json', authorization };
    const sent = fetch(`${oracle.url}/messages/${sessionId}`, {
      method: 'POST',
      headers,
      body: JSON.stringify({ message: 'Something else' }),
    });
    (await oracle.model.next()).answer('All right');
    expect((await sent).status).toBe(200);
    await page.goto(`${oracle.url}/app#/settings/files`);
    await page.locator('.conv').waitFor();
    await expect.poll(() => listDrafts(page)).toEqual([]);
  });
});

describe('what the server finds invalid', () => {
  it('in a schedule is said in the language of the page, with the label of the field', async () => {
    const { page } = await arrive('schedules', { locale: 'de-DE' });
    await button(page, 'Neuer Zeitplan').click();
    const alert = page.getByRole('alert');
    await page.getByLabel(/^Was soll/).fill(' ');
    await button(page, 'Unterschreiben und anlegen').click();
    await expect.poll(() => alert.innerText()).toMatch(/„Was soll .* tun\?“ fehlt\./);
    await page.getByLabel(/^Was soll/).fill('Nachrichten');
    await page.getByLabel('Wann').selectOption('Einmal');
    await page.getByLabel('Uhrzeit').fill('2099-01-01T08:00');
    await button(page, 'Unterschreiben und anlegen').click();
    await expect.poll(() => alert.innerText()).toContain('„Uhrzeit“: Dieser Wert ist ungültig.');
    expect(await alert.innerText()).not.toContain('trigger');
    await alert.getByText('Technische Details').click();
    await expect.poll(() => alert.innerText()).toContain('trigger.at: must be within 10 years');
  });

  it('in a fact says how long it must be', async () => {
    const { page } = await arrive('memory', { locale: 'fr-FR' });
    await button(page, 'Ajouter').click();
    await page.getByRole('textbox').last().fill('42');
    await button(page, 'Enregistrer').click();
    const alert = page.getByRole('alert');
    await expect.poll(() => alert.innerText()).toContain('Longueur minimale : 3.');
    expect(await alert.innerText()).not.toContain('Too small');
  });
});

it('another permission needs an action and the address of a resource', async () => {
  const { page } = await arrive('permissions');
  await page.getByText('Another permission, for developers').click();
  const allow = page.locator('form').getByRole('button', { name: 'Allow for 7 days' });
  const resource = page.getByLabel('Resource', { exact: true });
  const own = await resource.inputValue();
  // As texts are pasted.
  await page.getByLabel('Action', { exact: true }).fill(' store/add ');
  await resource.fill('nonsense');
  await allow.click();
  const invalid = page.locator('form :invalid:focus');
  expect(await invalid.inputValue()).toBe('nonsense');
  expect(await invalid.getAttribute('title')).toContain('An address with a colon');
  await resource.fill(`${own} `);
  await allow.click();
  await expectText(page, 'Use “store/add”');
});

describe('on a phone', () => {
  it('the choices of a new schedule fit into the form', async () => {
    const { page } = await arrive('schedules', { width: 320, locale: 'de-DE' });
    await button(page, 'Neuer Zeitplan').click();
    const findRight = async (selector: string) => {
      const { x = 0, width = 0 } = (await page.locator(selector).boundingBox()) ?? {};
      return x + width;
    };
    await page.locator('form select').first().waitFor();
    const right = await findRight('form textarea');
    for (const index of [0, 1, 2])
      expect(await findRight(`form select >> nth=${index}`)).toBeLessThanOrEqual(right);
  });

  it('the buttons of the backup reminder are aligned with its text', async () => {
    const { page } = await arrive('usage', { width: 320 });
    const reminder = page.getByRole('complementary');
    const findLeft = async (selector: string) =>
      Math.round((await reminder.locator(selector).boundingBox())?.x ?? 0);
    await reminder.getByRole('button').waitFor();
    const left = await findLeft('.grow');
    expect(await findLeft('a')).toBe(left);
    expect(await findLeft('button')).toBe(left);
  });

  it('the name of a file is not broken within short words', async () => {
    const { page } = await arrive('files', { width: 320, locale: 'de-DE' });
    const file = { mimeType: 'text/plain', buffer: Buffer.from('Rain in Kitui') };
    await page.getByTestId('upload').setInputFiles({ ...file, name: 'weather-report.txt' });
    const name = page.getByText('weather-report.txt');
    // At most two lines.
    await expect.poll(async () => (await name.boundingBox())?.height ?? 99).toBeLessThan(50);
    await page.locator('.table .badge:visible').waitFor();
  });
});
