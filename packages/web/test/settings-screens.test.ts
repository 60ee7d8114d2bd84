import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseWords } from '@sibyl/client/words';
import { exportPrivateKey, generateSigner } from '@sibyl/ucan';
import type { Page } from 'playwright-core';
import decodeQR from 'qr/decode.js';
import { describe, expect, it } from 'vitest';
import { select } from '../../../scripts/test-scale.ts';
import { sibyl, useFolder } from '../../cli/test/support/sibyl.js';
import { chooseLanguage, expectText, openTab, SCREENSHOTS } from './support/browser.js';
import {
  download,
  findOverflow,
  findViolations,
  SCREENS,
  useSettings,
} from './support/use-settings.js';

const home = useFolder();
const { oracle, arrive, open, converse } = useSettings({ APPROVALS: 'plugin:memory' });

const button = (on: Page, name: string | RegExp) => on.getByRole('button', { name });
const main = (on: Page) => on.locator('main');

/** The words of the key, once they are shown. */
async function readWords(page: Page): Promise<string[]> {
  const words = page.locator('.words li');
  await expect.poll(() => words.count()).toBe(24);
  return words.allTextContents();
}

describe('every settings screen', () => {
  const windows = [
    ['light', { width: 1440, height: 900 }],
    ['dark', { width: 768, height: 1024, colorScheme: 'dark' as const }],
    ['narrow', { width: 320, height: 700 }],
  ] as const;

  it.each(select(windows, 'narrow'))(
    'has no violation of axe and fits the window: %s',
    async (name, options) => {
      const { page, consoleErrors } = await arrive('key', options);
      for (const screen of SCREENS) {
        await open(page, screen);
        await expect.poll(() => page.locator('main [aria-busy="true"]').count()).toBe(0);
        expect(await findViolations(page), screen).toEqual([]);
        expect(await findOverflow(page), screen).toEqual([]);
        await page.screenshot({ path: `${SCREENSHOTS}/settings-${screen}-${name}.png` });
      }
      expect(consoleErrors).toEqual([]);
    },
  );

  it('runs from right to left in Arabic', async () => {
    const { page } = await arrive('preferences', { width: 1024, height: 900 });
    await page.getByLabel('Language of this page').selectOption('ar');
    await expect.poll(() => page.evaluate(() => document.documentElement.dir)).toBe('rtl');
    for (const screen of SCREENS) {
      await open(page, screen);
      expect(await findViolations(page), screen).toEqual([]);
      expect(await findOverflow(page), screen).toEqual([]);
      await page.screenshot({ path: `${SCREENSHOTS}/settings-${screen}-rtl.png` });
    }
    await expect.poll(() => page.locator('h1').last().textContent()).toBe('بياناتك');
  });
});

describe('key screen', () => {
  it('does not close over an unfinished backup; words are checked; the key stays in the browser', async () => {
    const { page } = await arrive('key');
    const sent: string[] = [];
    page.on('request', (request) =>
      sent.push(`${request.url()} ${JSON.stringify(request.headers())} ${request.postData()}`),
    );
    await expectText(page, 'Clearing site data deletes your key');
    await page.getByRole('radio', { name: /24 words/ }).check();
    await button(page, 'Show the words').click();
    const words = await readWords(page);
    await page.keyboard.press('Escape');
    await expect.poll(() => page.locator('.words li').count()).toBe(24);
    await page.getByRole('link', { name: 'Files' }).click();
    await expectText(page, 'Your backup isn’t finished');
    await page.keyboard.press('Escape');
    expect(page.url()).toContain('#/settings/key');
    await expect.poll(() => page.locator('.words li').count()).toBe(24);

    await button(page, 'I wrote them down').click();
    const labels = await page.locator('.field', { hasText: /^Word \d+/ }).allTextContents();
    for (const label of labels) await page.getByLabel(label, { exact: true }).fill('wrong');
    await button(page, 'Check the words').click();
    await expectText(page, '3 words are different');
    for (const label of labels) {
      const position = Number(label.replace(/\D/g, ''));
      await page.getByLabel(label, { exact: true }).fill(words[position - 1] ?? '');
    }
    await button(page, 'Check the words').click();
    await expectText(page, /Your key is backed up/);
    await open(page, 'files');
    await open(page, 'permissions');
    const parsed = parseWords(words.join(' '));
    const seed = Buffer.from('seed' in parsed ? parsed.seed : []);
    expect(seed).toHaveLength(32);
    const secrets = [words.slice(0, 3).join(' '), seed.toString('base64'), seed.toString('hex')];
    expect(sent.length).toBeGreaterThan(3);
    for (const secret of secrets) expect(sent.filter((text) => text.includes(secret))).toEqual([]);
    await open(page, 'key');

    const { page: other } = await arrive('key');
    await button(other, 'Add').click();
    await other
      .getByRole('dialog')
      .getByRole('radio', { name: /24 words/ })
      .check();
    await other.getByLabel(/Your 24 words/).fill(words.join(' '));
    await button(other, 'Add to this browser').click();
    await button(other, 'Stay with the current one').click();
    await expect.poll(() => other.locator('.rows .avatar').count()).toBe(2);
    const dids = await other.locator('.rows code').allTextContents();
    expect(dids).toContain(await page.locator('.rows code').first().textContent());
  });

  it('copies the key to a second device with a QR code and a number', async () => {
    const { page } = await arrive('key');
    await page.getByRole('radio', { name: /Second device/ }).check();
    await button(page, 'Show the code').click();
    const number = await page.locator('.code-num').textContent();
    const link = await readQrCode(page);
    expect(link).toContain(`${oracle.url}/app`);

    const { page: phone } = await arrive('key', { width: 390, height: 844 });
    await phone.goto('about:blank');
    await phone.goto(link);
    await expectText(phone, 'The number below the code on your other device');
    expect(phone.url()).not.toContain('key=');
    const field = phone.getByLabel(/The number below the code/);
    await field.fill('000000');
    await button(phone, 'Add to this browser').click();
    await expectText(phone, 'The number doesn’t fit');
    await field.fill(number ?? '');
    await button(phone, 'Add to this browser').click();
    await Promise.all([phone.waitForEvent('load'), button(phone, 'Switch to it now').click()]);
    await open(phone, 'key');
    const own = await page.locator('.rows code').first().textContent();
    await expect.poll(() => phone.locator('.rows code').first().textContent()).toBe(own);
  });

  it('a passkey protects the key; the page works after it was confirmed', async () => {
    const { page } = await arrive('key');
    await page.goto(`${oracle.url.replace('127.0.0.1', 'localhost')}/app#/settings/key`);
    const session = await page.context().newCDPSession(page);
    await session.send('WebAuthn.enable');
    const { authenticatorId } = await session.send('WebAuthn.addVirtualAuthenticator', {
      options: {
        protocol: 'ctap2',
        ctap2Version: 'ctap2_1',
        transport: 'internal',
        hasResidentKey: true,
        hasUserVerification: true,
        hasPrf: true,
        isUserVerified: true,
        automaticPresenceSimulation: true,
      },
    });
    const passkey = page.getByRole('switch', { name: 'Protect with a passkey' });
    await passkey.waitFor();
    await expect.poll(() => passkey.isDisabled()).toBe(true);
    await page.getByRole('radio', { name: /24 words/ }).check();
    await button(page, 'Show the words').click();
    const words = await readWords(page);
    await button(page, 'I wrote them down').click();
    for (const label of await page.locator('.field', { hasText: /^Word \d+/ }).allTextContents())
      await page
        .getByLabel(label, { exact: true })
        .fill(words[Number(label.replace(/\D/g, '')) - 1] ?? '');
    await button(page, 'Check the words').click();
    await expect.poll(() => passkey.isEnabled()).toBe(true);
    // Browsers ask for a passkey only on the page that has the focus.
    await page.bringToFront();
    await passkey.click();
    await expectText(page, 'protected by a passkey');
    await page.reload();
    await expectText(page, 'A passkey protects your key in this browser');
    expect(await findViolations(page)).toEqual([]);
    await page.screenshot({ path: `${SCREENSHOTS}/unlock.png` });
    await page.evaluate(() => {
      const ask = navigator.credentials.get.bind(navigator.credentials);
      // The user cancels the first question.
      navigator.credentials.get = async () => {
        navigator.credentials.get = ask;
        throw new DOMException('cancelled', 'NotAllowedError');
      };
    });
    await button(page, 'Unlock').click();
    await expectText(page, 'The passkey wasn’t confirmed');
    await page.locator('button:focus', { hasText: 'Unlock' }).waitFor();
    await page.bringToFront();
    await button(page, 'Unlock').click();
    await expectText(page, 'protected by a passkey');

    // The page of operators asks for it in the same way.
    await page.goto(page.url().replace(/\/app.*/, '/app/operator'));
    await button(page, 'Unlock').waitFor();
    await chooseLanguage(page, 'de');
    await button(page, 'Entsperren').waitFor();
    await chooseLanguage(page, 'en');
    await button(page, 'Unlock').click();
    await expectText(page, 'This page is for operators');
    await page.goBack();
    await expectText(page, 'A passkey protects your key in this browser');

    // Without the passkey, the backup opens the key again; nothing else is needed.
    await session.send('WebAuthn.removeVirtualAuthenticator', { authenticatorId });
    await page.reload();
    await button(page, 'I don’t have the passkey…').click();
    await page
      .getByRole('dialog')
      .getByRole('radio', { name: /24 words/ })
      .check();
    await page.getByLabel(/Your 24 words/).fill(words.join(' '));
    await button(page, 'Add to this browser').click();
    await Promise.all([page.waitForEvent('load'), button(page, 'Switch to it now').click()]);
    await page.locator('main.main').waitFor();
    await open(page, 'key');
    await expect.poll(() => page.locator('.rows .avatar').count()).toBe(1);
    await expect.poll(() => page.getByText('protected by a passkey').count()).toBe(0);
  });

  it('adds a private key as text; Escape keeps what was typed; switching loses nothing', async () => {
    const { page } = await arrive();
    await converse(page, 'Good morning', 'Good morning to you');
    await open(page, 'key');
    const signer = generateSigner();
    const add = page.getByRole('button', { name: 'Add', exact: true });
    await add.click();
    await page.keyboard.press('Escape');
    // Focus returns to where it was.
    await expect.poll(() => add.evaluate((each) => each === document.activeElement)).toBe(true);
    await add.click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('radio', { name: /24 words/ }).check();
    const field = page.getByLabel(/Your 24 words/);
    await field.fill('M not a key');
    for (let i = 0; i < 4; i += 1) await page.keyboard.press('Escape');
    await expect.poll(() => field.inputValue()).toBe('M not a key');
    await expect.poll(() => field.isVisible()).toBe(true);
    await field.fill('Mnotakey');
    await button(page, 'Add to this browser').click();
    await expectText(page, 'This is not a key or a backup of one');
    const key = exportPrivateKey(signer);
    await field.fill(` ${key.slice(0, 40)}\n${key.slice(40)} `);
    await dialog.getByLabel(/^Name/).fill('Field office');
    await button(page, 'Add to this browser').click();
    await button(page, 'Stay with the current one').click();
    await expectText(page, 'Field office');
    const list = async () => (await page.locator('.rows code').allTextContents()).sort();
    const both = await list();
    expect(both.join()).toContain(signer.did.slice(-6));
    for (const conversations of [0, 1]) {
      await Promise.all([page.waitForEvent('load'), button(page, 'Switch').click()]);
      await page.locator('main.main').waitFor();
      await expect.poll(() => page.locator('.conv a').count()).toBe(conversations);
      await open(page, 'key');
      await expect.poll(list).toEqual(both);
    }
  });

  it('a switch takes nothing along, and another tab keeps its identity', async () => {
    const { page, context, consoleErrors } = await arrive();
    await context.route('**/settings.json', (route) =>
      route.fulfill({ json: { matrixBaseUrl: 'https://matrix.example' } }),
    );
    await page.reload();
    await converse(page, 'Good morning', 'Good morning to you');
    await open(page, 'matrix');
    await page.getByLabel('Access token').fill('secret');
    await Promise.all([page.waitForEvent('load'), button(page, 'Connect').click()]);
    await expectText(page, 'Connected until you close this tab');
    await button(page, /^More about/).click();
    await page.getByRole('menuitem', { name: 'Delete' }).click();
    await expect.poll(() => page.locator('.conv').count()).toBe(0);
    // The deletion is due when the page starts again.
    await page.evaluate(() => {
      const list = localStorage.getItem('sibyl-deletions') ?? '';
      localStorage.setItem('sibyl-deletions', list.replace(/"at":\d+/, '"at":0'));
    });
    await open(page, 'key');
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await page
      .getByRole('dialog')
      .getByRole('radio', { name: /New identity/ })
      .check();
    await page.getByRole('dialog').getByLabel(/^Name/).fill('Field office');
    await page.getByRole('dialog').getByRole('button', { name: 'Add to this browser' }).click();
    await Promise.all([page.waitForEvent('load'), button(page, 'Switch to it now').click()]);
    await expectText(page, 'No conversations yet');
    await open(page, 'matrix');
    await page.getByLabel('Access token').waitFor();

    const other = await openTab(context, consoleErrors);
    await other.goto(`${oracle.url}/app#/settings/key`);
    await expect.poll(() => other.locator('.me').textContent()).toContain('Field office');
    await open(page, 'key');
    await Promise.all([page.waitForEvent('load'), button(page, 'Switch').click()]);
    const countDeletions = () =>
      page.evaluate(() => JSON.parse(localStorage.getItem('sibyl-deletions') ?? '').length);
    await expect.poll(countDeletions).toBe(0);
    await expectText(page, 'No conversations yet');
    await open(page, 'key');
    await button(page, 'More for You').click();
    await page.getByRole('menuitem', { name: 'Rename' }).click();
    await page.getByLabel('Name').fill('Home');
    await page.keyboard.press('Enter');
    await expectText(other, 'Home');
    await expect.poll(() => other.locator('.me').textContent()).toContain('Field office');
    const own = other.locator('.rows > li', { hasText: 'In use' });
    await expect.poll(() => own.innerText()).toContain('Field office');
  });

  it('its words are the same identity in sibyl key, and the other way round', async () => {
    const { page } = await arrive('key');
    const env = { SIBYL_KEY_FILE: join(home, 'key') };
    await page.getByRole('radio', { name: /24 words/ }).check();
    await button(page, 'Show the words').click();
    const words = await readWords(page);
    const own = (await page.locator('.rows code').first().textContent()) ?? '';
    const imported = await sibyl(['key', 'import'], { env, input: words.join('\n') });
    expect(imported.stdout.slice(-6)).toBe(own.slice(-6));
    expect(imported.stdout.startsWith(own.split('…')[0] ?? '?')).toBe(true);

    await button(page, 'Hide').click();
    const { stdout: did } = await sibyl(['key', 'new'], { env });
    const { stdout: exported } = await sibyl(['key', 'export', '--words'], { env });
    await button(page, 'Add').click();
    await page
      .getByRole('dialog')
      .getByRole('radio', { name: /24 words/ })
      .check();
    await page.getByLabel(/Your 24 words/).fill(exported);
    await button(page, 'Add to this browser').click();
    await button(page, 'Stay with the current one').click();
    await expect
      .poll(async () => (await page.locator('.rows code').allTextContents()).join())
      .toContain(did.slice(-6));
  });

  it('a reload over an unfinished backup asks first', async () => {
    const { page } = await arrive('key');
    await page.getByRole('textbox', { name: /^Passphrase/ }).fill('orbit canvas maple');
    const asked = page.waitForEvent('dialog').then(async (dialog) => {
      const type = dialog.type();
      await dialog.dismiss();
      return type;
    });
    void page.reload().catch(() => undefined);
    expect(await asked).toBe('beforeunload');
    await expect
      .poll(() => page.getByRole('textbox', { name: /^Passphrase/ }).inputValue())
      .toBe('orbit canvas maple');
  });
});

/** Reads the QR code in the page as a camera would: from its pixels. */
async function readQrCode(page: Page): Promise<string> {
  const { path, size } = await page.locator('.qr svg').evaluate((svg) => ({
    path: svg.querySelector('path')?.getAttribute('d') ?? '',
    size: Number(svg.getAttribute('viewBox')?.split(' ')[2]),
  }));
  const scale = 4;
  const width = (size + 8) * scale;
  const data = new Uint8ClampedArray(width * width * 4).fill(255);
  for (const [, x, y] of path.matchAll(/M(\d+) (\d+)h1/g))
    for (let i = 0; i < scale * scale; i += 1) {
      const column = (Number(x) + 4) * scale + (i % scale);
      const row = (Number(y) + 4) * scale + Math.floor(i / scale);
      data.fill(0, (row * width + column) * 4, (row * width + column) * 4 + 3);
    }
  return decodeQR({ width, height: width, data });
}

describe('other settings screens', () => {
  it('rules are signed; what the operator requires cannot be allowed', async () => {
    const { page } = await arrive('permissions');
    const memory = page.getByRole('group', { name: 'Rule for Memory' });
    await memory.waitFor();
    await expect.poll(() => memory.getByLabel('Allow').isDisabled()).toBe(true);
    await expectText(page, 'The operator requires your approval');
    await page
      .getByRole('group', { name: 'Rule for Post office' })
      .getByLabel('Block')
      .check({ force: true });
    await expectText(page, '1 change not signed yet');
    await button(page, 'Sign and save').click();
    await expectText(page, 'These rules apply now');
    await page.reload();
    const blocked = page.getByRole('group', { name: 'Rule for Post office' }).getByLabel('Block');
    await expect.poll(() => blocked.isChecked()).toBe(true);
  });

  it('everything at once is never granted', async () => {
    const { page } = await arrive('permissions');
    await page.getByText('Another permission, for developers').click();
    await page.getByLabel('Action', { exact: true }).fill('*');
    await expectText(page, 'That would allow everything');
    const allow = page.locator('form').getByRole('button', { name: 'Allow for 7 days' });
    await expect.poll(() => allow.isDisabled()).toBe(true);
  });

  it('an access key is shown once, listed, and revoked', async () => {
    const { page } = await arrive('permissions');
    await button(page, 'New access key').click();
    await page.getByLabel('What is it for?').fill('Dashboard');
    await button(page, 'Sign and create').click();
    const key = await page.getByTestId('shown-once').textContent();
    expect(key?.length).toBeGreaterThan(200);
    await button(page, 'I stored it').click();
    await expect.poll(() => page.getByTestId('shown-once').count()).toBe(0);
    await expectText(page, 'Dashboard');
    await button(page, 'Revoke: Dashboard').click();
    await expect.poll(() => main(page).getByText('Dashboard').count()).toBe(0);
  });

  it('facts and preferences can be changed', async () => {
    const { page } = await arrive('memory');
    await button(page, 'Add a fact').click();
    await page.getByLabel('Fact', { exact: true }).fill('Works in Kitui');
    await button(page, 'Save').click();
    await expectText(page, 'Works in Kitui');
    await button(page, 'Edit: Works in Kitui').click();
    await page.getByLabel('Fact', { exact: true }).fill('Works in Nairobi');
    await button(page, 'Save').click();
    await expectText(page, 'Works in Nairobi');
    await button(page, 'Forget: Works in Nairobi').click();
    await expectText(page, 'Nothing yet');

    await open(page, 'preferences');
    await page.getByLabel('What to call you').fill('Sam');
    await page.getByLabel('Length').selectOption('concise');
    await button(page, 'Save').click();
    await page.getByText('Saved').waitFor();
    await page.reload();
    await expect.poll(() => page.getByLabel('What to call you').inputValue()).toBe('Sam');
    await expect.poll(() => page.getByLabel('Length').inputValue()).toBe('concise');
  });

  it('a schedule is created, switched off and deleted', async () => {
    const { page } = await arrive('schedules');
    await button(page, 'New schedule').click();
    await page.getByLabel(/What should .* do\?/).fill('Summarize the news');
    await button(page, 'Sign and create').click();
    await expectText(page, /Monday to Friday at/);
    const choose = async (name: string) => {
      await button(page, 'More for Summarize the news').click();
      await page.getByRole('menuitem', { name }).click();
    };
    await choose('Show or hide past runs');
    await expectText(page, 'No runs yet.');
    await choose('Run now');
    const turn = await oracle.model.next();
    await expectText(page, /: running/);
    turn.answer('Nothing new');
    await expectText(page, /: done/);
    const toggle = page.getByRole('switch', { name: 'Summarize the news is on' });
    await toggle.click();
    await expectText(page, 'switched off');
    await choose('Delete');
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await expectText(page, 'No schedules yet');
  });

  it('a file is uploaded, counted and deleted', async () => {
    const { page } = await arrive('files');
    const file = { name: 'note.txt', mimeType: 'text/plain', buffer: Buffer.from('Rain in Kitui') };
    await page.getByTestId('upload').setInputFiles(file);
    await expectText(page, 'note.txt');
    await expectText(page, /of .* used/);
    await button(page, 'More for note.txt').click();
    await page.getByRole('menuitem', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await expectText(page, 'No files yet');
  });

  it('everything is exported, erased after a confirmation, and imported again', async () => {
    const { page } = await arrive();
    await converse(page, 'Remember the rain', 'I will');
    await open(page, 'usage');
    await expectText(page, 'Remember the rain');
    await open(page, 'data');
    const path = await download(page, () => button(page, 'Export').click());
    expect(readFileSync(path).subarray(0, 2).toString()).toBe('PK');
    await button(page, 'Erase…').click();
    const erase = button(page, 'Erase everything');
    await expect.poll(() => erase.isDisabled()).toBe(true);
    await page.getByLabel('Type “erase” to confirm').fill('erase');
    await erase.click();
    await expectText(page, /records were erased/);
    await page.getByTestId('import').setInputFiles(path);
    await expectText(page, /entries added/);
  });
});
