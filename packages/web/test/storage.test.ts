import type { Page, Route } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { chooseLanguage, expectText, openTab, useBrowser, waitForFile } from './support/browser.js';
import { usePage } from './support/use-page.js';

const { oracle, arrive, converse, write } = usePage({
  MODEL_CHOICES: 'openai-compatible/other',
});
const browser = useBrowser();

const hints = [
  [
    'blocks its storage',
    () => {
      const refuse = () => {
        throw new DOMException('Access is denied', 'SecurityError');
      };
      Object.defineProperty(window, 'localStorage', { get: refuse });
      Object.defineProperty(window, 'sessionStorage', { get: refuse });
      IDBFactory.prototype.open = refuse;
      // Firefox refuses these too.
      Object.defineProperty(window, 'BroadcastChannel', { value: refuse });
      LockManager.prototype.request = async () => refuse();
      LockManager.prototype.query = async () => refuse();
    },
  ],
  [
    'does not store keys in private windows',
    () => {
      IDBObjectStore.prototype.put = () => {
        throw new DOMException('The object could not be cloned', 'DataCloneError');
      };
    },
  ],
  [
    'has no WebCrypto, since the page was opened without TLS',
    () => Object.defineProperty(crypto, 'subtle', { value: undefined }),
  ],
] as const;

it.each(hints)('a browser that %s says what to do instead of an empty page', async (_, block) => {
  const { page, consoleErrors } = await browser.visit();
  await page.addInitScript(block);
  await page.goto(`${oracle.url}/app`);
  await expectText(page, 'This browser can’t keep your key');
  await expectText(page, /Open the page with https:\/\/ and allow this site to store data/);
  expect(await page.getByText('Check your connection').count()).toBe(0);
  expect(consoleErrors).toEqual([]);
});

it('with a full storage, drafts, theme and language last as long as the page', async () => {
  const { page, consoleErrors } = await arrive();
  await converse(page, 'Hello', 'Good day');
  await page.evaluate(() => {
    Storage.prototype.setItem = () => {
      throw new DOMException('The quota has been exceeded', 'QuotaExceededError');
    };
  });
  const box = page.getByLabel('Your message');
  await box.fill('Half a thought');
  await page.getByRole('link', { name: 'New conversation' }).click();
  await expect.poll(() => box.inputValue()).toBe('');
  await page.locator('.conv a').click();
  await expect.poll(() => box.inputValue()).toBe('Half a thought');
  await page.getByRole('button', { name: 'You: settings and theme' }).click();
  await page.getByText('Dark', { exact: true }).click();
  await expect.poll(() => page.getAttribute('html', 'data-theme')).toBe('dark');
  await expect.poll(() => page.getByLabel('Dark', { exact: true }).isChecked()).toBe(true);
  await page.getByRole('menuitem', { name: 'Preferences' }).click();
  await page.getByLabel('Language of this page').selectOption('de');
  await expect.poll(() => page.getAttribute('html', 'lang')).toBe('de');
  expect(consoleErrors).toEqual([]);
});

it('with a full storage, an unsent message is kept although another tab changes the others', async () => {
  const { page, context, consoleErrors } = await arrive();
  const other = await openTab(context, consoleErrors);
  await other.goto(`${oracle.url}/app`);
  await other.getByLabel('Your message').waitFor();
  await page.evaluate(() => {
    Storage.prototype.setItem = () => {
      throw new DOMException('The quota has been exceeded', 'QuotaExceededError');
    };
    addEventListener('storage', ({ newValue }) => {
      if (newValue?.includes('In the storage')) document.body.dataset.heard = '';
    });
  });
  await context.setOffline(true);
  await write(page, 'Only in memory');
  await expectText(page, 'Only in memory');
  await write(other, 'In the storage');
  await page.locator('body[data-heard]').waitFor();
  await context.setOffline(false);
  const received = [];
  for (let i = 0; i < 2; i += 1) {
    const turn = await oracle.model.next();
    received.push(turn.body.messages.at(-1).content);
    turn.answer('Good');
  }
  expect(received.sort()).toEqual(['In the storage', 'Only in memory']);
});

it('of more than a hundred drafts, those that were changed last are kept', async () => {
  const { page } = await arrive();
  await converse(page, 'Hello', 'Good day');
  const names = await page.evaluate(() => {
    const [prefix = ''] = Object.keys(localStorage)
      .filter((key) => key.startsWith('sibyl-outbox:'))
      .map((key) => key.replace('sibyl-outbox:', 'sibyl-draft:'));
    const add = (name: string, at: number) =>
      localStorage.setItem(`${prefix}:${name}`, JSON.stringify({ text: name, files: [], at }));
    add('0-newest', Date.now());
    for (let i = 0; i < 100; i += 1) add(`${100 + i}`, 1_000 + i);
    return prefix;
  });
  await page.getByRole('link', { name: 'New conversation' }).click();
  const kept = () =>
    page.evaluate(
      (prefix) =>
        Object.keys(localStorage)
          .filter((key) => key.startsWith(prefix))
          .map((key) => key.slice(prefix.length + 1))
          .sort(),
      names,
    );
  await expect.poll(async () => (await kept()).length).toBe(100);
  expect(await kept()).toContain('0-newest');
  expect(await kept()).not.toContain('100');
});

it('a page that the browser has kept in its history shows what other tabs have stored meanwhile', async () => {
  const { page } = await arrive();
  await converse(page, 'Which trees grow on clay?', 'Willows do');
  await page.locator('.conv').hover();
  await page.getByRole('button', { name: 'More about Which trees' }).click();
  await page.getByRole('menuitem', { name: 'Pin' }).click();
  const pinned = page.getByRole('region', { name: 'Pinned' });
  await pinned.waitFor();
  // Changes of the same tab cause no event, as those of others while the page is kept.
  await page.evaluate(() => {
    for (const key of Object.keys(localStorage))
      if (key.startsWith('sibyl-pins:')) localStorage.setItem(key, '[]');
    window.dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }));
  });
  await expect.poll(() => pinned.count()).toBe(0);
});

it('if the browser refuses to copy an answer, its code or its table, the page says so', async () => {
  const { page } = await arrive();
  await page.addInitScript(() => {
    navigator.clipboard.writeText = () => Promise.reject(new DOMException('', 'NotAllowedError'));
  });
  await page.reload();
  await write(page, 'Compare');
  (await oracle.model.next()).answer(
    '| Site | Rain |\n|---|---|\n| Kitui | 12 |\n\n```py\nprint(1)\n```\n\nThat is all',
  );
  await expectText(page, 'That is all');
  for (const name of ['Copy as CSV', 'Copy code', 'Copy answer']) {
    await page.getByRole('button', { name }).click();
    await expectText(page, 'The browser refused to copy.');
    await page.locator('.toast').getByRole('button', { name: 'Close' }).click();
    await expect.poll(() => page.locator('.toast').count()).toBe(0);
  }
});

it('a message that was not sent stays in its conversation when the user starts another one', async () => {
  const { page } = await arrive();
  await converse(page, 'Hello', 'Hi there');
  await page.route('**/messages/**', (route) =>
    route.request().method() === 'POST'
      ? route.fulfill({ status: 402, json: { code: 'insufficient_credit', message: 'No credit' } })
      : route.continue(),
  );
  await write(page, 'Costly');
  await expectText(page, 'Your message is saved.');
  await page.getByRole('link', { name: 'New conversation' }).click();
  await expectText(page, 'Welcome.');
  await page.goBack();
  await expectText(page, 'Your message is saved.');
});

it.each(['open', 'loaded again'])(
  'a message to a conversation that was deleted, and that is %s, moves to a new one',
  async (state) => {
    const { page, context, consoleErrors } = await arrive();
    await converse(page, 'Hello', 'Good day');
    const isReloaded = state === 'loaded again';
    const refuse = (route: Route) =>
      route.request().method() === 'POST' ? route.abort() : route.fallback();
    if (isReloaded) {
      await page.route('**/messages/*', refuse);
      await write(page, 'What did I say?');
      await page.locator('.bubble.is-unsent').waitFor();
    }
    const other = await openTab(context, consoleErrors);
    await other.goto(`${oracle.url}/app`);
    await other.locator('.conv').hover();
    await other.locator('.conv').getByRole('button').click();
    const deletion = other.waitForResponse((each) => each.request().method() === 'DELETE');
    await other.getByRole('menuitem', { name: 'Delete' }).click();
    await deletion;
    await page.unroute('**/messages/*');
    await (isReloaded ? page.reload() : write(page, 'What did I say?'));
    await expectText(page, /Not sent: This conversation has been deleted/);
    const bar = page.locator('.msg-user:has(.is-unsent) .msg-bar');
    expect(await bar.getByRole('button').allInnerTexts()).toEqual(['New conversation', 'Discard']);
    await bar.getByRole('button', { name: 'New conversation' }).click();
    await expectText(page, 'Welcome. What can I help with?');
    expect(await page.getByLabel('Your message').inputValue()).toBe('What did I say?');
    await page.keyboard.press('Enter');
    (await oracle.model.next()).answer('Nothing yet');
    await expectText(page, 'Nothing yet');
    expect(await page.locator('.is-unsent').count()).toBe(0);
  },
);

it('the theme is chosen with the keyboard, and applies to all tabs', async () => {
  const { page, context, consoleErrors } = await arrive();
  const other = await openTab(context, consoleErrors);
  await other.goto(`${oracle.url}/app`);
  await other.getByLabel('Your message').waitFor();
  await page.locator('.me').press('Enter');
  const choice = page.getByRole('menuitemradio', { name: 'Auto' });
  await choice.waitFor();
  await page.keyboard.press('ArrowUp');
  await expect.poll(() => choice.evaluate((each) => each === document.activeElement)).toBe(true);
  await page.keyboard.press('ArrowLeft');
  for (const tab of [page, other])
    await expect.poll(() => tab.locator('html').getAttribute('data-theme')).toBe('dark');
  await page.keyboard.press('ArrowDown');
  const first = page.getByRole('menuitem', { name: 'Permissions' });
  await expect.poll(() => first.evaluate((each) => each === document.activeElement)).toBe(true);
});

it('a message is sent to the model that the page names, also if another tab has chosen it', async () => {
  const { page, context, consoleErrors } = await arrive();
  const other = await openTab(context, consoleErrors);
  await other.goto(`${oracle.url}/app`);
  await other.getByRole('button', { name: 'Model: controlled' }).click();
  await other.getByRole('menuitemradio', { name: /^other/ }).click();
  await page.getByRole('button', { name: 'Model: other' }).waitFor();
  await write(page, 'Who are you?');
  const turn = await oracle.model.next();
  expect(turn.body.model).toBe('other');
  turn.answer('The other one');
  await expectText(page, 'The other one');
});

it('a message to a conversation that another tab is about to delete keeps it', async () => {
  const { page, context, consoleErrors } = await arrive();
  await converse(page, 'Hello', 'Good day');
  const other = await openTab(context, consoleErrors);
  await other.goto(`${oracle.url}/app`);
  await other.locator('.conv').hover();
  await other.locator('.conv').getByRole('button').click();
  await other.getByRole('menuitem', { name: 'Delete' }).click();
  await expect.poll(() => page.locator('.conv').count()).toBe(0);
  await write(page, 'One more thing');
  (await oracle.model.next()).answer('I am listening');
  await expectText(page, 'I am listening');
  for (const tab of [page, other]) await expect.poll(() => tab.locator('.conv').count()).toBe(1);
  const read = () => page.evaluate(() => localStorage.getItem('sibyl-deletions'));
  expect(await read()).toBe('[]');
});

it('a start that fails is tried again, also if a proxy answers in place of the oracle', async () => {
  const { page } = await browser.visit();
  const html = { contentType: 'text/html', body: '<h1>Please log in</h1>' };
  const answers: ((route: Route) => Promise<void>)[] = [
    (route) => route.abort(),
    (route) => route.fulfill({ status: 502, ...html }),
    (route) => route.fulfill({ status: 200, ...html }),
  ];
  await page.route('**/.well-known/oracle.json', (route) =>
    (answers.shift() ?? ((each: Route) => each.continue()))(route),
  );
  await page.goto(`${oracle.url}/app`);
  await expectText(page, 'Can’t reach this oracle');
  await page.getByLabel('Your message').waitFor();
  expect(answers).toEqual([]);
});

it('settings that cannot be read are explained in the language that is chosen, and read again once the browser is online', async () => {
  const { page } = await browser.visit();
  await page.clock.install();
  await page.route('**/settings.json', (route) =>
    route.fulfill({ body: '<h1>Please log in</h1>' }),
  );
  await page.goto(`${oracle.url}/app`);
  await expectText(page, 'Can’t reach this oracle. Check your connection and try again.');
  // Without the attempt that a timer makes.
  await page.clock.pauseAt(Date.now() + 1_000);
  await chooseLanguage(page, 'de');
  await expectText(page, 'Dieses Orakel ist nicht erreichbar');
  await chooseLanguage(page, 'en');
  await page.unroute('**/settings.json');
  await page.evaluate(() => dispatchEvent(new Event('online')));
  await page.getByLabel('Your message').waitFor();
});

describe('while the texts of a language arrive late', () => {
  /** Holds back the file that contains a text, until the returned function is called. */
  async function hold(page: Page, text: string): Promise<() => void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    await page.route('**/assets/*.js', async (route) => {
      const response = await route.fetch();
      if ((await response.text()).includes(text)) await promise;
      await route.fulfill({ response });
    });
    return resolve;
  }

  const showPreferences = (page: Page) =>
    page.evaluate(() => {
      location.hash = '#/settings/preferences';
    });

  it('the last choice is applied', async () => {
    const { page } = await arrive();
    const release = await hold(page, 'Unterhaltungen und Befehle');
    const request = page.waitForRequest('**/assets/chat-*.js');
    await chooseLanguage(page, 'de');
    const german = (await request).url();
    await chooseLanguage(page, 'es');
    await page.locator('html[lang="es"]').waitFor();
    release();
    await waitForFile(page, german);
    expect(await page.locator('html').getAttribute('lang')).toBe('es');
  });

  it('a screen that is opened meanwhile has them too', async () => {
    const { page } = await arrive();
    const release = await hold(page, 'Unterhaltungen und Befehle');
    await chooseLanguage(page, 'de');
    await showPreferences(page);
    await page.getByRole('heading', { name: 'Preferences' }).waitFor();
    release();
    await page.locator('html[lang="de"]').waitFor();
    await page.getByLabel('Sprache dieser Seite').waitFor();
  });

  it('those of a screen do not replace those of the language that is chosen meanwhile', async () => {
    const { page } = await arrive();
    await chooseLanguage(page, 'de');
    await page.locator('html[lang="de"]').waitFor();
    const release = await hold(page, 'Sprache dieser Seite');
    await showPreferences(page);
    await chooseLanguage(page, 'es');
    await page.locator('html[lang="es"]').waitFor();
    release();
    await page.getByLabel('Idioma de esta página').waitFor();
    expect(await page.getByLabel('Sprache dieser Seite').count()).toBe(0);
  });
});

it('a language that is chosen in one tab applies to the others at once, also in an open dialog, and keeps what was typed', async () => {
  const { page, context, consoleErrors } = await arrive();
  await write(page, 'Hello');
  (await oracle.model.next()).answer('Good day\n\n```js\nlet a\n```');
  await page.getByRole('button', { name: 'Copy code' }).waitFor();
  const other = await openTab(context, consoleErrors);
  await other.goto(`${oracle.url}/app#/settings/preferences`);
  await page.keyboard.press('Control+k');
  const field = page.getByRole('dialog').getByRole('combobox');
  await field.fill('rain');
  await other.getByLabel('Language of this page').selectOption('de');
  await page.getByRole('dialog', { name: 'Unterhaltungen und Befehle suchen' }).waitFor();
  expect(await field.inputValue()).toBe('rain');
  expect(await field.evaluate((each) => each === document.activeElement)).toBe(true);
  await field.fill('');
  await page.getByRole('option', { name: 'Neue Unterhaltung' }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Antwort kopieren' }).waitFor();
  await page.getByRole('button', { name: 'Code kopieren' }).waitFor();
});
