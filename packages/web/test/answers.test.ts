import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { expectText, openTab, SCREENSHOTS } from './support/browser.js';
import { usePage } from './support/use-page.js';

const MODEL_SETTINGS = JSON.stringify({
  'openai-compatible/*': { prices: { input: 3, output: 15 } },
});
const { oracle, arrive, write, converse } = usePage({ MODEL_SETTINGS, APPROVALS: 'remember' });

const answer = (page: Page) => page.getByLabel('Answer', { exact: true }).last();
const button = (page: Page, name: string) => answer(page).getByRole('button', { name });
const isPressed = (page: Page, name: string) => button(page, name).getAttribute('aria-pressed');

/** Searches until the message is in the index, and opens the first result. */
async function find(page: Page, words: string): Promise<void> {
  await page.keyboard.press('Control+k');
  const search = async () => {
    await page.getByRole('combobox').fill('');
    await page.getByRole('combobox').fill(words);
    await page.locator('.palette mark').first().waitFor({ timeout: 2_000 });
    return page.getByRole('option').first().innerText();
  };
  await expect.poll(search, { timeout: 60_000 }).toMatch(new RegExp(words, 'i'));
  await page.keyboard.press('Enter');
}

const isInView = (page: Page, text: string) =>
  page
    .getByText(text)
    .first()
    .evaluate((element) => {
      const { top, bottom } = element.getBoundingClientRect();
      return top >= 0 && bottom <= innerHeight;
    });

describe('an answer', () => {
  it('is rated with a comment, which survives a reload, can be changed and withdrawn', async () => {
    const { page, context, consoleErrors } = await arrive();
    await converse(page, 'How much rain?', 'Twelve millimeters');
    const other = await openTab(context, consoleErrors);
    await other.goto(page.url());
    await expectText(other, 'Twelve millimeters');

    await button(page, 'Bad answer').click();
    await answer(page).getByLabel('What was wrong with this answer?').fill('Where?');
    await page.screenshot({ path: `${SCREENSHOTS}/feedback.png` });
    await button(page, 'Send feedback').click();
    await expectText(page, 'Thank you. Your feedback is stored.');
    await expect.poll(() => isPressed(other, 'Bad answer')).toBe('true');

    await page.reload();
    await expect.poll(() => isPressed(page, 'Bad answer')).toBe('true');
    await button(page, 'Good answer').click();
    const comment = answer(page).getByLabel('What was good about this answer?');
    await expect.poll(() => comment.inputValue()).toBe('Where?');
    await expect.poll(() => isPressed(page, 'Good answer')).toBe('true');
    expect(await isPressed(page, 'Bad answer')).toBe('false');

    await button(page, 'Withdraw feedback').click();
    await expect.poll(() => isPressed(page, 'Good answer')).toBe('false');
    await page.reload();
    await expect.poll(() => isPressed(page, 'Good answer')).toBe('false');
    expect(await isPressed(page, 'Bad answer')).toBe('false');
    expect(consoleErrors).toEqual([]);
  });

  it('shows its time, model, tokens and cost on demand', async () => {
    const { page } = await arrive();
    await converse(page, 'Hello', 'Hello to you');
    await button(page, 'More about this answer').click();
    await page.getByRole('menuitem', { name: 'Time, model and cost' }).click();
    const facts = answer(page).locator('.msg-meta');
    await expect
      .poll(() => facts.innerText())
      .toMatch(/:\d\d.* · openai-compatible\/controlled · [\d,]+ tokens \(.*\) · cost 0\.\d+/);
  });

  it('cites the files that it is based on', async () => {
    const { page } = await arrive();
    const notes = { name: 'notes.md', mimeType: 'text/markdown', buffer: Buffer.from('42 tons.') };
    await page.getByLabel('Files', { exact: true }).setInputFiles([notes]);
    await page.getByRole('button', { name: 'Remove notes.md' }).waitFor();
    await write(page, 'How large was the harvest?');
    (await oracle.model.next()).call({ name: 'search_files', input: { query: 'tons' } });
    (await oracle.model.next()).answer('It was 42 tons [1].');
    const check = async () => {
      const marker = answer(page).locator('p button.cite', { hasText: 'notes.md, line 1' });
      await expect.poll(() => marker.count()).toBe(1);
      const sources = page.getByRole('list', { name: 'Sources' }).getByRole('button');
      await expect.poll(() => sources.allInnerTexts()).toEqual(['notes.md, line 1']);
      return sources;
    };
    await check();
    await page.reload();
    const sources = await check();
    const [file] = await Promise.all([page.waitForEvent('download'), sources.click()]);
    expect(file.suggestedFilename()).toBe('notes.md');
  });
});

describe('the list of conversations marks', () => {
  const spinners = (page: Page) => page.locator('.conv').getByLabel('Answering now');
  const dots = (page: Page) => page.locator('.conv').getByLabel('New answer');

  it('running and unseen answers, in all tabs', async () => {
    const { page, context, consoleErrors } = await arrive();
    await converse(page, 'First', 'One');
    const other = await openTab(context, consoleErrors);
    await other.goto(`${oracle.url}/app`);
    await other.locator('.conv').waitFor();
    await expect.poll(() => dots(other).count()).toBe(0);

    await write(page, 'Second');
    const turn = await oracle.model.next();
    await expect.poll(() => spinners(other).count()).toBe(1);
    await page.getByRole('link', { name: 'New conversation' }).click();
    turn.answer('Two');
    await expect.poll(() => dots(other).count()).toBe(1);
    await expect.poll(() => dots(page).count()).toBe(1);
    await expect.poll(() => spinners(other).count()).toBe(0);

    await other.locator('.conv a').click();
    await expectText(other, 'Two');
    await expect.poll(() => dots(page).count()).toBe(0);
    await expect.poll(() => dots(other).count()).toBe(0);
  });

  it('what needs the user, in all tabs', async () => {
    const { page, context, consoleErrors } = await arrive();
    const other = await openTab(context, consoleErrors);
    await other.goto(`${oracle.url}/app`);
    await write(page, 'Remember that I like tea');
    (await oracle.model.next()).call({ name: 'remember', input: { fact: 'Likes tea' } });
    await expect.poll(() => other.locator('.conv', { hasText: 'Needs you' }).count()).toBe(1);
    await page.getByRole('button', { name: 'Approve' }).click();
    (await oracle.model.next()).answer('Noted');
    await expect.poll(() => other.locator('.conv', { hasText: 'Needs you' }).count()).toBe(0);
  });
});

it('the list of conversations shows old ones that are pinned or open, with their title', async () => {
  const { page } = await arrive();
  const request = page.waitForRequest(
    (each) => each.method() === 'POST' && each.url().endsWith('/sessions'),
  );
  await converse(page, 'An old question', 'An old answer');
  const address = page.url();
  const { authorization = '' } = await (await request).allHeaders();
  const headers = { authorization, 'x-auth-type': 'ucan', 'content-type': 'application/json' };
  for (let i = 0; i < 31; i += 1)
    await fetch(`${oracle.url}/sessions`, {
      method: 'POST',
      headers,
      body: `{"title":"New ${i}"}`,
    });
  await page.goto('about:blank');
  await page.goto(address);
  await expect.poll(() => page.title()).toContain('An old question');
  const row = page.locator('.conv', { hasText: 'An old question' });
  await row.hover();
  await row.getByRole('button').click();
  await page.getByRole('menuitem', { name: 'Pin' }).click();
  await page.getByRole('link', { name: 'New conversation' }).click();
  await page.reload();
  const pinned = page.getByRole('region', { name: 'Pinned' });
  await expect.poll(() => pinned.locator('.conv').innerText()).toContain('An old question');
  await fetch(`${oracle.url}/sessions/${address.split('/').at(-1)}`, {
    method: 'PATCH',
    headers,
    body: '{"title":"Renamed elsewhere"}',
  });
  await expect.poll(() => pinned.locator('.conv').innerText()).toContain('Renamed elsewhere');
  await pinned.locator('.conv').hover();
  await pinned.getByRole('button').click();
  const readPins = () =>
    page.evaluate(() =>
      Object.keys(localStorage)
        .filter((key) => key.startsWith('sibyl-pins:did:'))
        .map((key) => localStorage.getItem(key)),
    );
  await expect.poll(readPins).toEqual([JSON.stringify([address.split('/').at(-1)])]);
  await page.getByRole('menuitem', { name: 'Delete' }).click();
  await expect.poll(() => pinned.count()).toBe(0);
  await expect.poll(readPins, { timeout: 60_000 }).toEqual(['[]']);
});

describe('a found message', () => {
  it('is shown and highlighted, also on another branch', async () => {
    const { page } = await arrive();
    await converse(page, 'Which animal?', 'The quokka of Rottnest');
    await button(page, 'Regenerate').click();
    (await oracle.model.next()).answer('The wombat of Tasmania');
    await expectText(page, 'The wombat of Tasmania');
    await page.getByRole('link', { name: 'New conversation' }).click();
    await find(page, 'quokka');
    await expectText(page, 'The quokka of Rottnest');
    await expect.poll(() => page.locator('[data-found]').innerText()).toContain('quokka');
    await expect.poll(() => page.getByText('The wombat of Tasmania').count()).toBe(0);
    expect(await isInView(page, 'The quokka of Rottnest')).toBe(true);
    await expect.poll(() => page.url()).toMatch(/#\/s\/[\w-]+$/);
    // The other one, from within the same conversation.
    await find(page, 'wombat');
    await expectText(page, 'The wombat of Tasmania');
    await expect.poll(() => page.locator('[data-found]').innerText()).toContain('wombat');
  });
});

describe('the page', () => {
  it('notifies when a long answer ends in the background; asks once, in context', async () => {
    const { page } = await arrive();
    await page.addInitScript(() => {
      const log = { asked: 0, shown: [] as string[] };
      class FakeNotification {
        static permission = localStorage.getItem('granted') ?? 'default';
        static async requestPermission() {
          log.asked += 1;
          localStorage.setItem('granted', 'granted');
          FakeNotification.permission = 'granted';
          return 'granted';
        }
        constructor(title: string, { body }: { body: string }) {
          log.shown.push(`${title}: ${body}`);
        }
      }
      Object.assign(window, { Notification: FakeNotification, notifications: log });
    });
    const readLog = () =>
      page.evaluate(
        () =>
          (window as unknown as { notifications: { asked: number; shown: string[] } })
            .notifications,
      );
    await page.reload();
    await write(page, 'Think for long');
    const turn = await oracle.model.next();
    turn.say('It is ');
    await page.getByRole('button', { name: 'Notify me' }).click({ timeout: 60_000 });
    expect(await readLog()).toEqual({ asked: 1, shown: [] });
    await page.evaluate(() => {
      Object.defineProperty(document, 'hidden', { value: true, configurable: true });
    });
    turn.say('done');
    turn.finish();
    await expect.poll(async () => (await readLog()).shown.join()).toContain('It is done');
    // A short answer causes no notification, not even in the background.
    await write(page, 'Be quick');
    (await oracle.model.next()).answer('At once');
    await expectText(page, 'At once');
    expect(await readLog()).toEqual({ asked: 1, shown: [expect.stringContaining('It is done')] });
    // No user is asked twice, also not after a reload.
    await page.evaluate(() => localStorage.removeItem('granted'));
    await page.reload();
    await page.clock.install();
    await write(page, 'Think for long again');
    const second = await oracle.model.next();
    second.say('Almost ');
    await expectText(page, 'Almost');
    await page.clock.runFor(30_000);
    await expect.poll(() => page.getByRole('button', { name: 'Notify me' }).count()).toBe(0);
    second.say('there');
    second.finish();
    await expectText(page, 'Almost there');
    expect(await readLog()).toEqual({ asked: 0, shown: [] });
  });

  it('can be installed: its manifest has no errors', async () => {
    const { page, context } = await arrive();
    const session = await context.newCDPSession(page);
    const { data, errors } = await session.send('Page.getAppManifest');
    expect(errors).toEqual([]);
    expect(JSON.parse(data ?? '')).toMatchObject({ name: 'Sibyl', display: 'standalone' });
    const { installabilityErrors } = await session.send('Page.getInstallabilityErrors');
    // Profiles of tests are private windows.
    expect(installabilityErrors.filter(({ errorId }) => errorId !== 'in-incognito')).toEqual([]);
  });

  it('sends no request to third parties for images, until the user asks for one', async () => {
    const { page } = await arrive();
    const hosts = new Set<string>();
    page.on('request', (request) => hosts.add(new URL(request.url()).host));
    await page.route('https://images.example/**', (route) =>
      route.fulfill({
        contentType: 'image/svg+xml',
        body: '<svg xmlns="http://www.w3.org/2000/svg"/>',
      }),
    );
    await write(page, 'Show me');
    (await oracle.model.next()).answer(
      'A ![map](https://images.example/a.png) and ![pixel](http://spy.example/p.gif)',
    );
    const load = page.getByRole('button', { name: 'Load the image from images.example' });
    await load.waitFor();
    expect([...hosts].filter((host) => host.endsWith('.example'))).toEqual([]);
    await load.click();
    await expect
      .poll(() => [...hosts].filter((host) => host.endsWith('.example')))
      .toEqual(['images.example']);
  });
});
