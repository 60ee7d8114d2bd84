import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { expectText, openTab, SCREENSHOTS } from './support/browser.js';
import { usePage } from './support/use-page.js';

const { oracle, arrive, write, converse } = usePage({ APPROVALS: 'remember' });

const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const image = { name: 'field.png', mimeType: 'image/png', buffer: Buffer.from(PIXEL, 'base64') };
const notes = { name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('Plant in May') };

const answer = (page: Page) => page.getByLabel('Answer', { exact: true });

describe('an answer', () => {
  it('shows its parts in the order in which they happened, also after a reload', async () => {
    const { page } = await arrive();
    await write(page, 'Compare the rain');
    const turn = await oracle.model.next();
    turn.think('Two sites are enough');
    turn.say('First I look it up.');
    const points = [{ label: 'Kitui', value: 214 }];
    turn.call({ name: 'show_chart', input: { title: 'Rain', kind: 'bar', points } });
    const after = await oracle.model.next();
    after.answer('Kitui had the least.');
    await expectText(page, 'Kitui had the least.');
    const readOrder = async () => {
      const text = await answer(page).innerText();
      const parts = [
        'Reasoning',
        'First I look it up.',
        'Used “show chart”',
        'Kitui had the least.',
      ];
      return parts.map((part) => text.indexOf(part));
    };
    const order = await readOrder();
    expect(order).not.toContain(-1);
    expect(order).toEqual(order.toSorted((a, b) => a - b));
    await page.reload();
    await expectText(page, 'Kitui had the least.');
    const reloaded = await readOrder();
    expect(reloaded).not.toContain(-1);
    expect(reloaded).toEqual(reloaded.toSorted((a, b) => a - b));
    await page.getByRole('img', { name: /Rain: Kitui 214/ }).waitFor();
  });

  it('renders math, diagrams, tables and task lists, and loads images only after asking', async () => {
    const { page, context } = await arrive();
    const requested: string[] = [];
    await context.route('https://images.example/**', (route) => {
      requested.push(route.request().url());
      return route.fulfill({ contentType: 'image/png', body: image.buffer });
    });
    await write(page, 'Show everything');
    (await oracle.model.next()).answer(MARKDOWN);
    await page.locator('math').first().waitFor();
    await page.getByRole('img', { name: /^Diagram: graph TD/ }).waitFor();
    await expect.poll(() => page.getByLabel('Plant maize').isChecked()).toBe(true);
    await expectText(page, '1 row');
    await page.getByRole('button', { name: 'Copy as CSV' }).click();
    await expectText(page, 'Table copied');
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    expect(copied).toBe('Site,Rain\r\nKitui,"1,240"');
    expect(requested).toEqual([]);
    await page.getByRole('button', { name: 'Load the image from images.example' }).click();
    await expect.poll(() => requested).toEqual(['https://images.example/map.png']);
    await page.getByRole('img', { name: 'A map' }).waitFor();
    await page.getByRole('button', { name: 'Copy code' }).last().click();
    await expect
      .poll(() => page.evaluate(() => navigator.clipboard.readText()))
      .toBe('print("rain")');
    await page.getByRole('button', { name: 'Wrap lines' }).click();
    await expect.poll(() => page.locator('.is-wrapped pre').count()).toBe(1);
    await page.screenshot({ path: `${SCREENSHOTS}/markdown.png` });
  });
});

const MARKDOWN = `The share is $d = 1 - \\frac{214}{302}$, and it costs $5 or $7.

\`\`\`mermaid
graph TD
  A[Start] --> B[End]
\`\`\`

![A map](https://images.example/map.png)

- [x] Plant maize
- [ ] Wait for rain

| Site | Rain |
|---|---|
| Kitui | 1,240 |

\`\`\`py
print("rain")
\`\`\`
`;

it('a long answer can be collapsed', async () => {
  const { page } = await arrive();
  await write(page, 'Write a lot');
  (await oracle.model.next()).answer(`${'word '.repeat(700)}\n\nThe end`);
  await expectText(page, 'The end');
  const measure = async () => (await answer(page).boundingBox())?.height ?? 0;
  const full = await measure();
  await page.getByRole('button', { name: 'Show less' }).click();
  await expect.poll(measure).toBeLessThan(full / 2);
  await page.getByRole('button', { name: 'Show all' }).click();
  // Not exactly as before: what is below the answer may have changed after it was measured.
  await expect.poll(measure).toBeGreaterThan(0.9 * full);
});

describe('an approval', () => {
  it('is asked for in the conversation, edited, also across a reload, signed, and the answer continues', async () => {
    const { page } = await arrive();
    await write(page, 'Remember that I like tea');
    const turn = await oracle.model.next();
    turn.say('I will remember it.');
    turn.call({ name: 'remember', input: { fact: 'Likes tea' } });
    const card = page.getByRole('article', { name: 'Remember' });
    await card.waitFor();
    await expectText(page, 'Paused until you decide. You can close this page.');
    await page.reload();
    await card.waitFor();
    await expectText(page, 'Waiting to use “remember”');
    await page.screenshot({ path: `${SCREENSHOTS}/approval.png` });
    await card.getByRole('button', { name: 'Edit' }).click();
    await card.getByRole('textbox', { name: 'Fact' }).fill('Likes green tea');
    await card.getByLabel('Reason, if you deny it').fill('I like coffee');
    await page.reload();
    await expect
      .poll(() => card.getByRole('textbox', { name: 'Fact' }).inputValue())
      .toBe('Likes green tea');
    expect(await card.getByLabel('Reason, if you deny it').inputValue()).toBe('I like coffee');
    await card.getByRole('button', { name: 'Approve with changes' }).click();
    const after = await oracle.model.next();
    expect(after.results[0]).toContain('Likes green tea');
    after.say('Green tea ');
    await expectText(page, 'Green tea');
    after.say('it is.');
    after.finish();
    await expectText(page, 'Green tea it is.');
    await expect.poll(() => answer(page).innerText()).toMatch(/I will remember it\.[\s\S]*Used/);
    await expect.poll(() => page.getByText('Answer stopped').count()).toBe(0);
    await expect.poll(() => card.count()).toBe(0);
    const drafts = () =>
      page.evaluate(() => Object.keys(localStorage).filter((key) => /^sibyl-draft:/.test(key)));
    expect(await drafts()).toEqual([]);
  });

  it('is denied with a reason', async () => {
    const { page } = await arrive();
    await write(page, 'Remember my password');
    (await oracle.model.next()).call({ name: 'remember', input: { fact: 'secret' } });
    await page.getByLabel('Reason, if you deny it').fill('It is private');
    await page.getByRole('button', { name: 'Deny', exact: true }).click();
    const after = await oracle.model.next();
    expect(after.results[0]).toContain('It is private');
    after.answer('I will not.');
    await expectText(page, 'I will not.');
  });
});

describe('files', () => {
  it('are attached by button, paste and drop, can be removed, and are shown with the message', async () => {
    const { page } = await arrive();
    await page.getByLabel('Files', { exact: true }).setInputFiles([notes, image]);
    await page.getByRole('button', { name: 'Remove notes.txt' }).click();
    await page.getByRole('button', { name: 'Remove field.png' }).waitFor();
    await drop(page, 'drop', 'dropped.txt');
    await page.getByRole('button', { name: 'Remove dropped.txt' }).waitFor();
    await drop(page, 'paste', 'pasted.txt');
    await page.getByRole('button', { name: 'Remove pasted.txt' }).waitFor();
    await page.reload();
    await page.getByRole('button', { name: 'Remove field.png' }).waitFor();
    await write(page, 'Look at these');
    const turn = await oracle.model.next();
    const sent = JSON.stringify(turn.body.messages.at(-1));
    expect(sent).toContain('dropped.txt');
    expect(sent).toContain('pasted.txt');
    expect(sent).not.toContain('notes.txt');
    turn.answer('I see them');
    await expectText(page, 'I see them');
    await page.getByRole('img', { name: 'field.png' }).waitFor();
  });

  it('that are too large are refused with the reason', async () => {
    const { page } = await arrive();
    await page.route('**/files*', async (route) => {
      // Until the server has answered, the page shows how much it has sent.
      await page.getByRole('progressbar', { name: 'notes.txt' }).waitFor();
      await route.fulfill({
        status: 413,
        json: { statusCode: 413, code: 'file_too_large', message: 'Larger than 50 MB', error: '' },
      });
    });
    await page.getByLabel('Files', { exact: true }).setInputFiles([notes]);
    await expectText(page, 'Larger than 50 MB');
    await page.getByRole('button', { name: 'Remove notes.txt' }).click();
    await expect.poll(() => page.getByText('Larger than 50 MB').count()).toBe(0);
  });

  it('of a draft are there again after an edit; an upload ends with its composer', async () => {
    const { page } = await arrive();
    await converse(page, 'One', 'First');
    const files = page.getByLabel('Files', { exact: true });
    await files.setInputFiles([notes]);
    const attached = page.getByRole('button', { name: 'Remove notes.txt' });
    await attached.waitFor();
    const box = page.getByLabel('Your message');
    // A message can be edited once its turn has ended, shortly after the answer was shown.
    const edit = async () => {
      await box.press('ArrowUp');
      return box.inputValue();
    };
    await expect.poll(edit).toBe('One');
    await expect.poll(() => attached.count()).toBe(0);
    await box.press('Escape');
    await attached.waitFor();
    await expect.poll(() => box.inputValue()).toBe('');

    await page.route('**/files*', () => undefined);
    await files.setInputFiles([image]);
    await page.getByRole('progressbar', { name: 'field.png' }).waitFor();
    const failed = page.waitForEvent('requestfailed', (request) =>
      request.url().includes('/files'),
    );
    await page.getByRole('link', { name: 'New conversation' }).click();
    expect((await failed).failure()?.errorText).toContain('ABORTED');
    await page.locator('.conv a').click();
    await attached.waitFor();
    await expect.poll(() => page.getByText('field.png').count()).toBe(0);
  });
});

/** Drops or pastes a text file. */
const drop = (page: Page, kind: 'drop' | 'paste', name: string) =>
  page.getByLabel('Your message').evaluate(
    (field, [type, fileName]) => {
      const data = new DataTransfer();
      data.items.add(new File([`Content of ${fileName}`], fileName, { type: 'text/plain' }));
      const options = { bubbles: true, cancelable: true };
      field.dispatchEvent(
        type === 'drop'
          ? new DragEvent('drop', { ...options, dataTransfer: data })
          : new ClipboardEvent('paste', { ...options, clipboardData: data }),
      );
    },
    [kind, name] as const,
  );

describe('the list of conversations', () => {
  it('is live: titles, new conversations and turns of another tab appear', async () => {
    const { page, context, consoleErrors } = await arrive();
    const other = await openTab(context, consoleErrors);
    await other.goto(`${oracle.url}/app`);
    await other.getByLabel('Your message').waitFor();
    await converse(page, 'Which trees grow on clay?', 'Willows do');
    await expect.poll(() => other.locator('.conv').count()).toBe(1);
    await expect.poll(() => other.locator('.conv').innerText()).toContain('Which trees');
    await other.goto(page.url());
    await expectText(other, 'Willows do');
    await write(page, 'And on sand?');
    const turn = await oracle.model.next();
    turn.say('Pines ');
    await expectText(other, 'Pines');
    turn.say('like it');
    turn.finish();
    await expectText(other, 'Pines like it');
  });

  it('pins, exports and deletes with undo', async () => {
    const { page } = await arrive();
    await converse(page, 'Old notes', 'Noted down');
    const more = page.locator('.conv').getByRole('button', { name: /^More about/ });
    await more.click();
    await page.getByRole('menuitem', { name: 'Pin' }).click();
    await expectText(page, 'Pinned');
    await more.click();
    const download = page.waitForEvent('download');
    await page.getByRole('menuitem', { name: 'Export or share as a file' }).click();
    expect((await download).suggestedFilename()).toMatch(/\.md$/);
    await more.click();
    await page.getByRole('menuitem', { name: 'Delete' }).click();
    await expectText(page, 'No conversations yet');
    await page.getByRole('button', { name: 'Undo' }).click();
    await expect.poll(() => page.locator('.conv').count()).toBe(1);
    await page.locator('.conv a').click();
    await expectText(page, 'Noted down');
  });

  it('deletes again later what could not be deleted, and holds up nothing else', async () => {
    const { page } = await arrive();
    await converse(page, 'One', 'First');
    await page.getByRole('link', { name: 'New conversation' }).click();
    await converse(page, 'Two', 'Second');
    await expect.poll(() => page.locator('.conv').count()).toBe(2);
    const deleted: string[] = [];
    await page.route('**/sessions/*', (route) => {
      if (route.request().method() !== 'DELETE') return route.fallback();
      deleted.push(route.request().url());
      return deleted.length === 1 ? route.abort() : route.continue();
    });
    for (const left of [1, 0]) {
      await page
        .getByRole('button', { name: /^More about/ })
        .first()
        .click();
      await page.getByRole('menuitem', { name: 'Delete' }).click();
      await expect.poll(() => page.locator('.conv').count()).toBe(left);
    }
    /** The deletions that are due later happen now. */
    const hurry = async () => {
      await page.evaluate(() => {
        const later = JSON.parse(localStorage.getItem('sibyl-deletions') ?? '[]');
        const now = later.map((each: object) => ({ ...each, at: 0 }));
        localStorage.setItem('sibyl-deletions', JSON.stringify(now));
      });
      await page.reload();
    };
    const countWaiting = () =>
      page.evaluate(() => JSON.parse(localStorage.getItem('sibyl-deletions') ?? '').length);
    await hurry();
    await expect.poll(() => new Set(deleted).size).toBe(2);
    await expect.poll(countWaiting).toBe(1);
    await expectText(page, 'No conversations yet');
    await hurry();
    await expect.poll(countWaiting).toBe(0);
    expect(deleted[2]).toBe(deleted[0]);
    await expectText(page, 'No conversations yet');
  });

  it('is loaded again with Try again', async () => {
    const { page } = await arrive();
    await converse(page, 'One', 'First');
    await page.route('**/sessions?*', (route) => route.abort());
    // Its events would load the list, too.
    await page.route('**/sessions/events', (route) => route.abort());
    await page.reload();
    const again = page.locator('.side').getByRole('button', { name: 'Try again' });
    await again.waitFor();
    await expect.poll(() => page.getByText('No conversations yet').count()).toBe(0);
    await page.unroute('**/sessions?*');
    await again.click();
    await expect.poll(() => page.locator('.conv').count()).toBe(1);
    await expect.poll(() => again.count()).toBe(0);
  });
});

describe('code that cannot be loaded', () => {
  it('leaves the rest of the page as it is, and is loaded by Try again', async () => {
    const { page } = await arrive();
    const box = page.getByLabel('Your message');
    const code = /\/assets\/(palette|settings-screen|approval-card)-/;
    await page.route(code, (route) => route.abort());
    await page.reload();
    await box.waitFor();
    const toast = page.locator('.toast');
    for (let i = 0; i < 2; i += 1) {
      await page.keyboard.press('Control+k');
      await toast.getByRole('button', { name: 'Try again' }).waitFor();
      expect(await box.isVisible()).toBe(true);
      // On a busy machine, it may disappear by itself before the click.
      const close = toast.getByRole('button', { name: 'Close' });
      await close.click({ timeout: 2_000 }).catch(() => undefined);
      await expect.poll(() => toast.count()).toBe(0);
    }
    await page.getByRole('link', { name: 'Approvals' }).click();
    const alert = page.locator('main').getByRole('alert');
    await expect.poll(() => alert.textContent()).toContain('This screen could not be loaded.');
    await page.getByRole('link', { name: 'New conversation' }).click();
    await write(page, 'Remember that I like tea');
    (await oracle.model.next()).call({ name: 'remember', input: { fact: 'Likes tea' } });
    await expect.poll(() => alert.textContent()).toContain('This screen could not be loaded.');
    await box.fill('A draft');
    await page.unrouteAll();
    await alert.getByRole('button', { name: 'Try again' }).click();
    await page.getByRole('article', { name: 'Remember' }).waitFor();
    await expect.poll(() => box.inputValue()).toBe('A draft');
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox').waitFor();
  });
});

it('the details of an answer that cannot be loaded leave the answer as it is', async () => {
  const { page } = await arrive();
  await converse(page, 'Hello', 'Good day');
  await page.route(/\/assets\/answer-details-/, (route) => route.abort());
  await page.getByRole('button', { name: 'More about this answer' }).click();
  await page.getByRole('menuitem', { name: 'Time, model and cost' }).click();
  await expectText(page, 'This screen could not be loaded.');
  await page.getByRole('button', { name: 'Copy answer' }).waitFor();
});

it('a conversation that does not exist, or that another tab has deleted, says so', async () => {
  const { page, context, consoleErrors } = await arrive();
  await converse(page, 'Hello', 'Good day');
  const gone = 'This conversation has been deleted, or belongs to another identity.';
  const other = await openTab(context, consoleErrors);
  await other.goto(`${oracle.url}/app#/s/unknown`);
  await expectText(other, gone);
  await other.locator('.conv').hover();
  await other.locator('.conv').getByRole('button').click();
  await other.getByRole('menuitem', { name: 'Delete' }).click();
  await expect.poll(() => page.getByText(gone).isVisible(), { timeout: 60_000 }).toBe(true);
  await page.getByRole('main').getByRole('link', { name: 'New conversation' }).click();
  await expectText(page, 'Welcome. What can I help with?');
});

describe('the search', () => {
  it('finds messages and commands by keys, and returns focus', async () => {
    const { page } = await arrive();
    await converse(page, 'Where do quokkas live?', 'On Rottnest Island');
    await page.getByRole('link', { name: 'New conversation' }).click();
    await page.getByLabel('Your message').focus();
    await page.keyboard.press('Control+k');
    // An answer is found once it is stored, shortly after it was shown.
    const search = async () => {
      await page.getByRole('combobox').fill('');
      await page.getByRole('combobox').fill('rottnest');
      await page.getByRole('option').first().waitFor({ timeout: 2_000 });
      return page.getByRole('option').first().innerText();
    };
    await expect.poll(search).toContain('Rottnest');
    await page.keyboard.press('Enter');
    await expectText(page, 'On Rottnest Island');
    await page.getByLabel('Your message').focus();
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox').fill('keyboard');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor();
    await page.keyboard.press('Escape');
    await expect
      .poll(() => page.evaluate(() => document.activeElement?.getAttribute('aria-label')))
      .toBe('Your message');
  });

  it('and the other shortcuts: edit, hide the list, help, new conversation', async () => {
    const { page } = await arrive();
    await converse(page, 'One', 'First');
    // A message can be edited once its turn has ended, shortly after the answer was shown.
    const edit = async () => {
      await page.getByLabel('Your message').press('ArrowUp');
      return page.innerText('body');
    };
    await expect.poll(edit).toContain('Editing your message. The first version is kept.');
    await page.keyboard.press('Escape');
    await expect.poll(() => page.getByLabel('Your message').inputValue()).toBe('');
    await page.keyboard.press('Control+b');
    await expect.poll(() => page.locator('.side').isVisible()).toBe(false);
    // Also for those who pressed the keys by mistake.
    await page.getByRole('button', { name: 'Show conversations' }).click();
    await expect.poll(() => page.locator('.side a:focus').count()).toBe(1);
    await page.getByRole('link', { name: 'Files' }).click();
    await page.keyboard.press('Control+b');
    await expect.poll(() => page.locator('.open-side:focus').count()).toBe(1);
    await page.goBack();
    await page.getByLabel('Your message').waitFor();
    await page.keyboard.press('Control+b');
    await expect.poll(() => page.locator('.side').isVisible()).toBe(true);
    await page.getByRole('log').focus();
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.press('Control+Shift+o');
    await expectText(page, 'Welcome. What can I help with?');
  });
});

describe('languages', () => {
  it('follows the browser and writes from right to left', async () => {
    const { page } = await arrive({ locale: 'ar' }, 'رسالتك');
    await expect.poll(() => page.locator('html').getAttribute('dir')).toBe('rtl');
    await expectText(page, 'محادثة جديدة');
    // The placeholder begins where a text would.
    const box = page.getByLabel('رسالتك');
    await expect.poll(() => box.evaluate((field) => getComputedStyle(field).direction)).toBe('rtl');
    await box.fill('Hello');
    await expect.poll(() => box.evaluate((field) => getComputedStyle(field).direction)).toBe('ltr');
    await page.keyboard.press('Enter');
    const turn = await oracle.model.next();
    turn.say('Half an ans');
    await expectText(page, 'Half an ans');
    turn.fail({ message: 'The provider is overloaded' });
    const title = page.locator('.conv a');
    await expect
      .poll(() => title.evaluate((link) => getComputedStyle(link).textAlign))
      .toBe('right');
    // Why there is no answer is said in the language of the user, too.
    await expectText(page, 'يواجه مزوّد النموذج خطأ في الوقت الحالي.');
    await page.screenshot({ path: `${SCREENSHOTS}/welcome-ar.png` });
  });
});

it('document.title follows the conversation', async () => {
  const { page } = await arrive();
  await converse(page, 'A title for this', 'Sure thing');
  await expect.poll(() => page.title()).toContain('A title for this');
});
