import type { Locator, Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { expectText, openTab, SCREENSHOTS } from './support/browser.js';
import { usePage } from './support/use-page.js';

const { oracle, arrive, write, converse } = usePage();

/** Opens a screen from the menu behind the user's name. */
async function openScreen(page: Page, name: string): Promise<void> {
  await page.getByRole('button', { name: 'You: settings and theme' }).click();
  await page.getByRole('menuitem', { name }).click();
}

const answers = (page: Page) => page.getByLabel('Answer', { exact: true });

describe('chat page', () => {
  it('answers the first message of a new visitor without any setup', async () => {
    const { page, consoleErrors } = await arrive();
    await expectText(page, 'I work on soil carbon in Kenya.');
    await expectText(page, 'Use your key here');
    await expectText(
      page,
      'Other users can’t see your conversations. The operator of this oracle and its model provider can.',
    );
    expect((await (await fetch(oracle.url)).json()).message).toContain('/app');
    await write(page, 'Good morning');
    const turn = await oracle.model.next();
    turn.say('Good ');
    await expectText(page, 'Good');
    turn.say('morning to **you**');
    turn.finish();
    await expect.poll(() => page.locator('strong').textContent()).toBe('you');
    expect(page.url()).toContain('#/s/');
    expect(consoleErrors).toEqual([]);
  });

  it('shows the lines of a message as they were typed', async () => {
    const { page } = await arrive();
    const text = 'for x in list:\n    print(x)\n\nWhy?';
    await converse(page, text, 'Because');
    await expect.poll(() => page.locator('.bubble').innerText()).toBe(text);
  });

  it('never loses focus', async () => {
    const { page, context } = await arrive();
    await converse(page, 'Hello', 'Good day');
    const press = async (target: Locator, ...keys: string[]) => {
      await target.focus();
      for (const key of keys) await page.keyboard.press(key);
    };
    const button = (name: string) => page.getByRole('button', { name }).last();
    const focused = page.locator(':focus');
    const expectFocus = (place: string) =>
      expect
        .poll(() =>
          focused.evaluateAll((all, selector) => all.some((e) => e.closest(selector)), place),
        )
        .toBe(true);
    await press(page.locator('.conv a'), 'F2', 'x', 'Enter');
    await expectFocus('.conv a');
    await press(button('Good answer'), 'Enter');
    await expectFocus('form.card');
    await page.keyboard.press('Escape');
    await expectFocus('.msg-bar [aria-pressed="true"]');
    await press(button('Regenerate'), 'Enter');
    await expectFocus('.scroll');
    (await oracle.model.next()).answer('Good evening');
    await expectText(page, 'Good evening');
    await press(button('Previous answer'), 'Enter');
    await expectText(page, 'Good day');
    await expectFocus('.scroll');
    await context.setOffline(true);
    await page.getByLabel('Your message').fill('Lost');
    await press(button('Send'), 'Enter');
    await expectFocus('.composer');
    await press(button('Discard'), 'Enter');
    await expectFocus('.scroll');
    await context.setOffline(false);
    await page.getByLabel('Your message').press('Control+k');
    await page.getByRole('combobox').fill('memory');
    await page.keyboard.press('Enter');
    await expectFocus('.app');
  });

  it('continues the answer after a reload', async () => {
    const { page } = await arrive();
    await write(page, 'Write a story');
    const turn = await oracle.model.next();
    turn.say('Once upon ');
    await expectText(page, 'Once upon');
    await page.reload();
    await expectText(page, 'Once upon');
    turn.say('a time');
    turn.finish();
    await expectText(page, 'Once upon a time');
    await expect.poll(() => answers(page).count()).toBe(1);
  });

  it('shows the same turn in two tabs', async () => {
    const { page, context, consoleErrors } = await arrive();
    await converse(page, 'First', 'One');
    const other = await openTab(context, consoleErrors);
    await other.goto(page.url());
    await expectText(other, 'One');
    await write(page, 'Second');
    const turn = await oracle.model.next();
    turn.say('Seen in both ');
    await expectText(page, 'Seen in both');
    await expectText(other, 'Seen in both');
    turn.say('tabs');
    turn.finish();
    await expectText(other, 'Seen in both tabs');
    expect(consoleErrors).toEqual([]);
  });

  it('continues the answer after the network was offline', async () => {
    const { page, context } = await arrive();
    await write(page, 'Count');
    const turn = await oracle.model.next();
    turn.say('one ');
    await expectText(page, 'one');
    await context.setOffline(true);
    turn.say('two ');
    await expectText(page, 'You’re offline.');
    await context.setOffline(false);
    turn.say('three');
    turn.finish();
    await expectText(page, 'one two three');
  });

  it('stops an answer', async () => {
    const { page } = await arrive();
    await write(page, 'Keep talking');
    const turn = await oracle.model.next();
    turn.say('On and on');
    await expectText(page, 'On and on');
    const spinner = page.locator('.conv .spin');
    const readMotion = () => spinner.evaluate((element) => getComputedStyle(element).animationName);
    expect(await readMotion()).toBe('spin');
    await page.emulateMedia({ reducedMotion: 'reduce' });
    expect(await readMotion()).toBe('none');
    await page.keyboard.press('Escape');
    await turn.left;
    await expectText(page, 'Answer stopped');
    await converse(page, 'Thanks', 'You are welcome');
  });

  it('shows queued messages above the composer', async () => {
    const { page } = await arrive();
    await write(page, 'First');
    const turn = await oracle.model.next();
    turn.say('Thinking');
    await expectText(page, 'Thinking');
    await write(page, 'Second');
    await expect.poll(() => page.locator('.queue').textContent()).toContain('Second');
    turn.finish();
    const next = await oracle.model.next();
    next.say('Both done');
    next.finish();
    await expectText(page, 'Both done');
  });

  it('lets the agent change the theme with a browser tool', async () => {
    const { page } = await arrive();
    await write(page, 'Make it dark');
    const turn = await oracle.model.next();
    turn.call({ name: 'set_page_colors', input: { theme: 'dark' } });
    const after = await oracle.model.next();
    expect(JSON.stringify(after.body.messages)).toContain('dark');
    after.say('Dark it is');
    after.finish();
    await expectText(page, 'Dark it is');
    await expect.poll(() => page.locator('html').getAttribute('data-theme')).toBe('dark');
  });

  it('shows the chart, table and form of actions', async () => {
    const { page } = await arrive();
    await write(page, 'Show me');
    const points = [
      { label: 'Plot A', value: 42 },
      { label: 'Plot B', value: 17 },
    ];
    (await oracle.model.next()).call(
      { name: 'show_chart', input: { title: 'Carbon', kind: 'bar', points } },
      { name: 'show_table', input: { title: 'Plots', columns: ['Plot'], rows: [['A'], ['B']] } },
      {
        name: 'show_form',
        input: { title: 'New plot', fields: [{ name: 'n', label: 'Name', kind: 'text' }] },
      },
    );
    const after = await oracle.model.next();
    after.say('Here it is');
    after.finish();
    await expectText(page, 'Here it is');
    const chart = page.getByRole('img', { name: /Carbon: Plot A 42, Plot B 17/ });
    await expect.poll(() => chart.locator('rect').count()).toBe(2);
    await expect.poll(() => page.getByRole('table').locator('tbody tr').count()).toBe(2);
    await page.screenshot({ path: `${SCREENSHOTS}/components.png` });
    await page.getByRole('textbox', { name: 'Name' }).fill('C');
    await page.getByRole('form', { name: 'New plot' }).getByRole('button').click();
    const sent = await oracle.model.next();
    expect(JSON.stringify(sent.body.messages.at(-1))).toContain('Name: C');
    sent.say('Noted');
    sent.finish();
    await expectText(page, 'Noted');
  });

  it('shows a preference that was set in a conversation', async () => {
    const { page } = await arrive();
    await write(page, 'Answer in Spanish from now on');
    (await oracle.model.next()).call({
      name: 'set_user_preferences',
      input: { language: 'Spanish' },
    });
    const after = await oracle.model.next();
    after.say('Con gusto');
    after.finish();
    await expectText(page, 'Con gusto');
    await openScreen(page, 'Preferences');
    await expectText(page, 'Spanish');
  });

  it('renames and deletes a conversation, and hides it from other users', async () => {
    const { page } = await arrive();
    await converse(page, 'A secret', 'It is safe here');
    const row = page.locator('.conv').first();
    await row.getByRole('button', { name: /^More about/ }).click();
    await page.getByRole('menuitem', { name: /^Rename/ }).click();
    await page.getByLabel('New name').fill('My secret');
    await page.keyboard.press('Enter');
    await expect.poll(() => row.textContent()).toContain('My secret');

    const stranger = await arrive();
    await expectText(stranger.page, 'No conversations yet');
    await stranger.page.goto(page.url());
    await expect.poll(() => stranger.page.getByText('It is safe here').count()).toBe(0);

    await row.getByRole('button', { name: /^More about/ }).click();
    await page.getByRole('menuitem', { name: 'Delete' }).click();
    await expectText(page, 'No conversations yet');
    // Undo is within reach on a phone too, and does not cover the message box.
    await page.setViewportSize({ width: 320, height: 640 });
    const undo = await page.getByRole('button', { name: 'Undo' }).boundingBox();
    const box = await page.locator('.composer').boundingBox();
    expect(undo?.x).toBeGreaterThanOrEqual(0);
    expect((undo?.x ?? 0) + (undo?.width ?? 0)).toBeLessThanOrEqual(320);
    expect((undo?.y ?? 0) + (undo?.height ?? 0)).toBeLessThanOrEqual(box?.y ?? 0);
    await page.getByRole('button', { name: 'Undo' }).click();
    await expect.poll(() => page.locator('.conv').count()).toBe(1);
  });

  it('rejects an invalid private key', async () => {
    const { page } = await arrive();
    await openScreen(page, 'Your key');
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('radio', { name: /24 words/ }).check();
    await dialog.getByLabel(/Your 24 words/).fill('invalid');
    await dialog.getByRole('button', { name: 'Add to this browser' }).click();
    await expect.poll(() => dialog.getByRole('alert').count()).toBe(1);
  });

  it('shows live events to developers', async () => {
    const { page } = await arrive();
    await converse(page, 'Hello', 'Hi');
    await page.getByRole('button', { name: 'More', exact: true }).click();
    await page.getByRole('menuitem', { name: 'Live events' }).click();
    await expect.poll(() => page.getByText('status').first().isVisible()).toBe(true);
  });
});

/** Replaces the user's conversations with many, `last` is the oldest; returns how often the page asked. */
async function listMany(page: Page, last: string) {
  const state = { requests: 0 };
  const ids = Array.from({ length: 3_000 }, (_, i) => `s${i}`).with(-1, last);
  const lastUpdatedAt = new Date(1_700_000_000_000).toISOString();
  await page.route('**/sessions?*', async (route) => {
    state.requests += 1;
    const { searchParams: query } = new URL(route.request().url());
    const [limit, offset] = [Number(query.get('limit')), Number(query.get('offset'))];
    const sessions = ids
      .slice(offset, offset + limit)
      .map((id) => ({ sessionId: id, title: `Title of ${id}`, lastUpdatedAt }));
    await route.fulfill({ json: { sessions, total: ids.length } });
  });
  return state;
}

it('a conversation that is older than thousands of others has its title, and few requests load the long list', async () => {
  const { page } = await arrive();
  await converse(page, 'The oldest question', 'The oldest answer');
  const sessionId = page.url().split('/').at(-1) ?? '';
  const many = await listMany(page, sessionId);
  // Creating a format for each row would take most of the time.
  await page.addInitScript(() => {
    const { DateTimeFormat } = Intl;
    document.documentElement.dataset.formats = '0';
    Intl.DateTimeFormat = new Proxy(DateTimeFormat, {
      construct: (target, args) => {
        const { dataset } = document.documentElement;
        dataset.formats = String(Number(dataset.formats) + 1);
        return Reflect.construct(target, args);
      },
    });
  });
  await page.reload();
  await expect.poll(() => page.title()).toContain(`Title of ${sessionId}`);
  many.requests = 0;
  const rows = page.locator('.conv');
  const scroll = async () => {
    await rows.last().scrollIntoViewIfNeeded();
    return rows.count();
  };
  await expect.poll(scroll, { timeout: 60_000 }).toBeGreaterThan(900);
  expect(many.requests).toBeLessThan(60);
  expect(Number(await page.getAttribute('html', 'data-formats'))).toBeLessThan(20);
});

it('the list of conversations continues at its end, also if a busy browser reports late that it is visible', async () => {
  const { page } = await arrive();
  await listMany(page, 'last');
  await page.addInitScript(() => {
    const { IntersectionObserver: Observer } = window;
    window.IntersectionObserver = class extends Observer {
      constructor(callback: IntersectionObserverCallback, options?: IntersectionObserverInit) {
        const held: IntersectionObserverEntry[] = [];
        super((entries, observer) => {
          held.push(...entries);
          if (entries.at(-1)?.isIntersecting) callback(held.splice(0), observer);
        }, options);
      }
    };
  });
  await page.reload();
  const rows = page.locator('.conv');
  await expect.poll(() => rows.count()).toBe(30);
  await rows.last().scrollIntoViewIfNeeded();
  await expect.poll(() => rows.count()).toBeGreaterThan(30);
});
