import { setTimeout as sleep } from 'node:timers/promises';
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { expectText, openTab } from './support/browser.js';
import { usePage } from './support/use-page.js';

const { oracle, arrive, write, converse } = usePage();

const questions = (page: Page) => page.getByLabel('You', { exact: true });
const unsent = (page: Page) => page.locator('.bubble.is-unsent');
const box = (page: Page) => page.getByLabel('Your message');

/** Makes the next requests to send a message fail with this status. */
async function rejectMessages(page: Page, status: number, body: object, headers = {}) {
  await page.route('**/messages/*', (route) =>
    route.request().method() === 'POST'
      ? route.fulfill({ status, json: { statusCode: status, ...body }, headers })
      : route.fallback(),
  );
  return () => page.unroute('**/messages/*');
}

describe('messages that could not be sent', () => {
  it('are sent automatically and exactly once when the network is back', async () => {
    const { page, context } = await arrive();
    await converse(page, 'Hello', 'Good day');
    await context.setOffline(true);
    await write(page, 'Are you there?');
    await write(page, 'And now?');
    await expect.poll(() => unsent(page).count()).toBe(2);
    await expectText(page, 'Not sent yet. Waiting for a connection.');
    await context.setOffline(false);
    (await oracle.model.next()).answer('Here I am');
    const second = await oracle.model.next();
    const sent = JSON.stringify(second.body.messages);
    expect(sent.match(/Are you there\?/g)).toHaveLength(1);
    second.answer('Still here');
    await expectText(page, 'Still here');
    await expect.poll(() => unsent(page).count()).toBe(0);
    await expect
      .poll(() => questions(page).allInnerTexts())
      .toEqual(['Hello', 'Are you there?', 'And now?']);
    expect(oracle.model.arrived).toBe(0);
  });

  it('start a conversation when the network is back', async () => {
    const { page, context } = await arrive();
    await context.setOffline(true);
    await write(page, 'First words');
    await expect.poll(() => unsent(page).count()).toBe(1);
    await context.setOffline(false);
    (await oracle.model.next()).answer('Welcome');
    await expectText(page, 'Welcome');
    expect(page.url()).toContain('#/s/');
    await expect.poll(() => page.locator('.conv').count()).toBe(1);
  });

  it('survive a reload with the reason, and are sent by Retry', async () => {
    const { page } = await arrive();
    await converse(page, 'Hello', 'Good day');
    const body = { code: 'out_of_credit', message: 'Out of credit', error: 'Payment Required' };
    const restore = await rejectMessages(page, 402, { ...body, claims: [] });
    await write(page, 'Write the report');
    await expectText(page, 'You’ve used your credit. Your message is saved.');
    await page.reload();
    await expectText(page, 'You’ve used your credit. Your message is saved.');
    await expect.poll(() => unsent(page).allInnerTexts()).toEqual(['Write the report']);
    await expect.poll(() => page.getByRole('link', { name: 'Usage' }).count()).toBe(1);
    await restore();
    await page.getByRole('button', { name: 'Retry' }).click();
    (await oracle.model.next()).answer('The report');
    await expectText(page, 'The report');
    await expect.poll(() => unsent(page).count()).toBe(0);
    await page.reload();
    await expectText(page, 'The report');
    await expect.poll(() => questions(page).allInnerTexts()).toEqual(['Hello', 'Write the report']);
  });

  it('wait for a server that was killed, and are sent once after a reload', async () => {
    const { page } = await arrive();
    await converse(page, 'Hello', 'Good day');
    await oracle.kill();
    await write(page, 'While you were away');
    await expect.poll(() => unsent(page).allInnerTexts()).toEqual(['While you were away']);
    await oracle.restart();
    await page.reload();
    (await oracle.model.next()).answer('I am back');
    await expectText(page, 'I am back');
    await page.reload();
    await expectText(page, 'I am back');
    await expect
      .poll(() => questions(page).allInnerTexts())
      .toEqual(['Hello', 'While you were away']);
    expect(oracle.model.arrived).toBe(0);
  });

  it('are there once if the server was killed while it answered', async () => {
    const { page } = await arrive();
    await write(page, 'A long story');
    (await oracle.model.next()).say('Once upon a time');
    await expectText(page, 'Once upon a time');
    await oracle.kill();
    await oracle.restart();
    await page.reload();
    await page.getByRole('button', { name: 'Retry' }).waitFor();
    await expect.poll(() => questions(page).allInnerTexts()).toEqual(['A long story']);
    await page.getByRole('button', { name: 'Retry' }).click();
    (await oracle.model.next()).answer('The end');
    await expectText(page, 'The end');
    await expect.poll(() => questions(page).allInnerTexts()).toEqual(['A long story']);
  });

  it('are sent once if the page is reloaded at once', async () => {
    const { page } = await arrive();
    await converse(page, 'Hello', 'Good day');
    await write(page, 'Quick');
    await page.reload();
    (await oracle.model.next()).answer('Quicker');
    await expectText(page, 'Quicker');
    await page.reload();
    await expectText(page, 'Quicker');
    await expect.poll(() => questions(page).allInnerTexts()).toEqual(['Hello', 'Quick']);
    expect(oracle.model.arrived).toBe(0);
  });

  it('go back into the box with Edit, or disappear with Discard', async () => {
    const { page } = await arrive();
    await converse(page, 'Hello', 'Good day');
    const body = { code: 'validation_failed', message: 'message: too long', error: 'Bad Request' };
    const restore = await rejectMessages(page, 400, body);
    await write(page, 'A mistake');
    await expectText(page, /Not sent: message: too long/);
    await page.getByRole('button', { name: 'Edit' }).last().click();
    await expect.poll(() => box(page).inputValue()).toBe('A mistake');
    await expect.poll(() => unsent(page).count()).toBe(0);
    await page.keyboard.press('Enter');
    await expectText(page, /Not sent: message: too long/);
    await page.getByRole('button', { name: 'Discard' }).click();
    await expect.poll(() => unsent(page).count()).toBe(0);
    await restore();
    await converse(page, 'Next', 'Fine');
  });

  it('start one conversation, also if the user opens another one meanwhile', async () => {
    const { page } = await arrive();
    await converse(page, 'Hello', 'Good day');
    await page.getByRole('link', { name: 'New conversation' }).click();
    let posts = 0;
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    await page.route('**/sessions', async (route) => {
      if (route.request().method() !== 'POST') return route.fallback();
      posts += 1;
      await released;
      await route.continue();
    });
    await write(page, 'Something else');
    await expect.poll(() => posts).toBe(1);
    await page.locator('.conv a').click();
    await expectText(page, 'Good day');
    release();
    (await oracle.model.next()).answer('On another topic');
    await expect.poll(() => page.locator('.conv').count()).toBe(2);
    expect(posts).toBe(1);
    expect(oracle.model.arrived).toBe(0);
  });

  it('that follow the first one before its conversation exists stay in it, in order', async () => {
    const { page, context } = await arrive();
    await context.setOffline(true);
    await write(page, 'First');
    await write(page, 'Second');
    await context.setOffline(false);
    (await oracle.model.next()).answer('One');
    (await oracle.model.next()).answer('Two');
    await expectText(page, 'Two');
    await expect.poll(() => questions(page).allInnerTexts()).toEqual(['First', 'Second']);
    await expect.poll(() => page.locator('.conv').count()).toBe(1);
  });

  it('that replace another message still do after Edit', async () => {
    const { page } = await arrive();
    await converse(page, 'One', 'First');
    await converse(page, 'Two', 'Second');
    const body = { code: 'validation_failed', message: 'message: too long', error: 'Bad Request' };
    const restore = await rejectMessages(page, 400, body);
    await questions(page).first().hover();
    await page.getByRole('button', { name: 'Edit' }).first().click();
    await write(page, 'One, edited');
    await expectText(page, /Not sent: message: too long/);
    // The message says so itself.
    await expect.poll(() => page.locator('.banner[role]').count()).toBe(0);
    await restore();
    await page.getByRole('button', { name: 'Edit' }).last().click();
    await expectText(page, 'Editing your message. The first version is kept.');
    await expect.poll(() => box(page).inputValue()).toBe('One, edited');
    await write(page, 'One, edited again');
    const turn = await oracle.model.next();
    expect(JSON.stringify(turn.body.messages)).not.toContain('Two');
    turn.answer('Another first');
    await expectText(page, 'Another first');
    await expect
      .poll(() => questions(page).allInnerTexts())
      .toEqual([expect.stringContaining('One, edited again')]);
  });

  it('are never sent once they were discarded or edited, even while an attempt is running', async () => {
    const { page, context } = await arrive();
    await converse(page, 'Hello', 'Good day');
    await context.setOffline(true);
    await write(page, 'Not this');
    await page.getByRole('button', { name: 'Discard' }).click();
    await expect.poll(() => page.getByText('Not this').count()).toBe(0);
    await write(page, 'Nor thus');
    await page.getByRole('button', { name: 'Edit' }).last().click();
    await box(page).fill('But this');
    await expect.poll(() => page.getByRole('button', { name: 'Stop' }).count()).toBe(0);
    await page.keyboard.press('Enter');
    await expectText(page, 'Not sent yet. Waiting for a connection.');
    await context.setOffline(false);
    (await oracle.model.next()).answer('Agreed');
    await expectText(page, 'Agreed');
    await expect.poll(() => questions(page).allInnerTexts()).toEqual(['Hello', 'But this']);
    await page.reload();
    await expectText(page, 'Agreed');
    await expect.poll(() => questions(page).allInnerTexts()).toEqual(['Hello', 'But this']);
    expect(oracle.model.arrived).toBe(0);
  });

  it('wait as long as the rate limit says, then go out by themselves', async () => {
    const { page } = await arrive();
    await converse(page, 'Hello', 'Good day');
    const body = { code: 'rate_limited', message: 'Too many', error: 'Too Many Requests' };
    const restore = await rejectMessages(page, 429, body, { 'Retry-After': '4' });
    await write(page, 'Too fast');
    await expectText(page, /goes out in \d seconds?\./);
    await page.reload();
    await expectText(page, /goes out in \d seconds?\./);
    await restore();
    (await oracle.model.next()).answer('Slowly');
    await expectText(page, 'Slowly');
  });

  it('of two tabs are both kept, even if one does not notice the changes of the other in time', async () => {
    const { page, context, consoleErrors } = await arrive();
    await converse(page, 'Hello', 'Good day');
    const late = await openTab(context, consoleErrors);
    await late.addInitScript(() =>
      addEventListener('storage', (event) => event.stopImmediatePropagation(), true),
    );
    await late.goto(page.url());
    await expectText(late, 'Good day');
    await context.setOffline(true);
    await write(page, 'From the first tab');
    await expect.poll(() => unsent(page).count()).toBe(1);
    await write(late, 'From the second tab');
    await expect.poll(() => unsent(page).count()).toBe(2);
    await context.setOffline(false);
    for (let i = 0; i < 2; i += 1) (await oracle.model.next()).answer('Received');
    const all = ['Hello', 'From the first tab', 'From the second tab'];
    await expect
      .poll(async () => (await questions(page).allInnerTexts()).sort())
      .toEqual(all.sort());
  });

  it('are sent by another tab after the first one was closed', async () => {
    const { page, context, consoleErrors } = await arrive();
    await converse(page, 'Hello', 'Good day');
    const address = page.url();
    await context.setOffline(true);
    await write(page, 'Before I close');
    await expect.poll(() => unsent(page).count()).toBe(1);
    await page.close();
    await context.setOffline(false);
    const other = await openTab(context, consoleErrors);
    await other.goto(`${oracle.url}/app`);
    (await oracle.model.next()).answer('Got it');
    await other.goto(address);
    await expectText(other, 'Got it');
    await expect.poll(() => questions(other).allInnerTexts()).toEqual(['Hello', 'Before I close']);
  });
});

describe('drafts', () => {
  it('survive a reload and switching conversations', async () => {
    const { page } = await arrive();
    await converse(page, 'One', 'First');
    const first = page.url();
    await box(page).fill('A draft of the first');
    await page.getByRole('link', { name: 'New conversation' }).click();
    await expect.poll(() => box(page).inputValue()).toBe('');
    await box(page).fill('A draft of a new one');
    await page.goto(first);
    await expect.poll(() => box(page).inputValue()).toBe('A draft of the first');
    await page.reload();
    await expectText(page, 'First');
    await expect.poll(() => box(page).inputValue()).toBe('A draft of the first');
    await page.getByRole('link', { name: 'New conversation' }).click();
    await expect.poll(() => box(page).inputValue()).toBe('A draft of a new one');
  });

  it('stay in a tab while another one sends its own', async () => {
    const { page, context, consoleErrors } = await arrive();
    const other = await openTab(context, consoleErrors);
    await other.goto(`${oracle.url}/app`);
    await box(other).waitFor();
    await box(page).fill('Not finished yet');
    await converse(other, 'Hello', 'Good day');
    await page.reload();
    await expect.poll(() => box(page).inputValue()).toBe('Not finished yet');
    // What was only shown in a tab has been sent by the other one.
    await other.getByRole('link', { name: 'New conversation' }).click();
    await expect.poll(() => box(other).inputValue()).toBe('Not finished yet');
    await converse(other, 'Finished', 'Well done');
    await page.reload();
    await box(page).waitFor();
    await expect.poll(() => box(page).inputValue()).toBe('');
  });
});

describe('versions of messages', () => {
  it('a failed answer is there after a reload with its reason and Retry', async () => {
    const { page } = await arrive();
    await write(page, 'Try');
    const turn = await oracle.model.next();
    turn.say('Half an ans');
    await expectText(page, 'Half an ans');
    turn.fail({ message: 'The provider is overloaded' });
    await expectText(page, 'The answer stopped early');
    await page.reload();
    await expectText(page, 'The answer stopped early');
    await expectText(page, 'Half an ans');
    await page.getByRole('button', { name: 'Retry' }).click();
    (await oracle.model.next()).answer('A whole answer');
    await expectText(page, 'A whole answer');
    await expect.poll(() => page.getByText('Half an ans').count()).toBe(0);
  });

  it('regenerate and edit create versions to switch between', async () => {
    const { page } = await arrive();
    await converse(page, 'One', 'First answer');
    await page.getByRole('button', { name: 'Regenerate' }).click();
    (await oracle.model.next()).answer('Second answer');
    await expectText(page, 'Second answer');
    await expectText(page, '2/2');
    await page.getByRole('button', { name: 'Previous answer' }).click();
    await expectText(page, 'First answer');
    await expectText(page, '1/2');

    await questions(page).first().hover();
    await page.getByRole('button', { name: 'Edit' }).first().click();
    await expect.poll(() => box(page).inputValue()).toBe('One');
    await page.reload();
    await expectText(page, 'Editing your message. The first version is kept.');
    await expect.poll(() => box(page).inputValue()).toBe('One');
    await box(page).fill('One, edited');
    await page.keyboard.press('Enter');
    (await oracle.model.next()).answer('Answer to the edit');
    await expectText(page, 'Answer to the edit');
    await expect.poll(() => page.getByText('First answer').count()).toBe(0);
    // The buttons of a question are inside of it: what is outside is not painted.
    const question = questions(page).first();
    const [outer, inner] = await Promise.all([
      question.boundingBox(),
      question.getByRole('button', { name: 'Previous version' }).boundingBox(),
    ]);
    expect(inner && outer && inner.y + inner.height <= outer.y + outer.height + 1).toBe(true);
    await page.getByRole('button', { name: 'Previous version' }).click();
    await expectText(page, 'Second answer');
  });

  it('a queued message can be withdrawn', async () => {
    const { page } = await arrive();
    await write(page, 'First');
    const turn = await oracle.model.next();
    turn.say('Thinking');
    await expectText(page, 'Thinking');
    await write(page, 'Second');
    await expect.poll(() => page.locator('.queue').textContent()).toContain('Second');
    await page.getByRole('button', { name: 'Withdraw' }).click();
    await expect.poll(() => page.locator('.queue').count()).toBe(0);
    turn.say(' and done');
    turn.finish();
    await expectText(page, 'Thinking and done');
    await converse(page, 'Third', 'Third answer');
    await expect.poll(() => questions(page).allInnerTexts()).toEqual(['First', 'Third']);
  });

  it('a refused Regenerate, Stop or Edit of a queued message says why', async () => {
    const { page } = await arrive();
    await converse(page, 'One', 'First answer');
    // The end of a turn, shortly after its answer was shown, clears errors.
    await page.reload();
    await expectText(page, 'First answer');
    const refuse = (pattern: string, message: string) =>
      page.route(pattern, (route) =>
        ['POST', 'DELETE'].includes(route.request().method())
          ? route.fulfill({ status: 409, json: { statusCode: 409, code: 'conflict', message } })
          : route.fallback(),
      );
    const alert = page.locator('.banner[role="alert"]');
    await refuse('**/messages/*', 'Another answer is not possible');
    await page.getByRole('button', { name: 'Regenerate' }).click();
    await expect.poll(() => alert.textContent()).toBe('Another answer is not possible');
    await expectText(page, 'First answer');
    await alert.getByRole('button', { name: 'Close' }).click();
    await expect.poll(() => alert.count()).toBe(0);
    await page.unroute('**/messages/*');

    await write(page, 'Two');
    const turn = await oracle.model.next();
    turn.say('Thinking');
    await expectText(page, 'Thinking');
    await write(page, 'Three');
    const edit = page.getByRole('button', { name: 'Edit queued message' });
    await edit.waitFor();
    await refuse('**/runs/*', 'It runs already');
    await edit.click();
    await expect.poll(() => alert.textContent()).toBe('It runs already');
    await expect.poll(() => box(page).inputValue()).toBe('');
    await page.unroute('**/runs/*');
    await edit.click();
    await expect.poll(() => box(page).inputValue()).toBe('Three');
    await expect.poll(() => page.locator('.queue').count()).toBe(0);
    await expect.poll(() => alert.count()).toBe(0);

    await box(page).fill('');
    await refuse('**/messages/abort', 'It cannot be stopped');
    await page.getByRole('button', { name: 'Stop' }).click();
    await expect.poll(() => alert.textContent()).toBe('It cannot be stopped');
    turn.finish();
  });
});

describe('scrolling', () => {
  const LINES = Array.from({ length: 60 }, (_, line) => `Line ${line}`).join('\n\n');
  const distance = (page: Page) =>
    page
      .getByRole('log')
      .evaluate((log) => Math.round(log.scrollHeight - log.scrollTop - log.clientHeight));

  /** The wheel scrolls smoothly: its first event is not its last. */
  const hasStopped = async (page: Page) => {
    const before = await distance(page);
    await sleep(100);
    return (await distance(page)) === before;
  };

  it('follows only at the very bottom: one tick of the wheel stops it', async () => {
    const { page } = await arrive();
    await write(page, 'Write a lot');
    const turn = await oracle.model.next();
    turn.say(LINES);
    await expectText(page, 'Line 59');
    await expect.poll(() => distance(page)).toBeLessThanOrEqual(4);
    // Turning a phone and opening a keyboard do not count as scrolling.
    for (const [width, height] of [
      [390, 844],
      [844, 390],
      [1200, 800],
    ] as const) {
      await page.setViewportSize({ width, height });
      await expect.poll(() => distance(page)).toBeLessThanOrEqual(4);
      await expect.poll(() => page.getByRole('button', { name: 'Jump to latest' }).count()).toBe(0);
    }
    await page.getByRole('log').hover();
    await page.mouse.wheel(0, -40);
    await expectText(page, 'Jump to latest');
    const before = await distance(page);
    turn.say('\n\nAnd more');
    await expect.poll(() => page.getByText('And more').count()).toBe(1);
    await expect.poll(() => distance(page)).toBeGreaterThan(before);
    await page.getByRole('button', { name: 'Jump to latest' }).click();
    await expect.poll(() => distance(page)).toBeLessThanOrEqual(4);
    turn.say('\n\nThe end');
    turn.finish();
    await expectText(page, 'The end');
    await expect.poll(() => distance(page)).toBeLessThanOrEqual(4);
  });

  it('sending scrolls to the message that was sent', async () => {
    const { page } = await arrive();
    await write(page, 'Write a lot');
    (await oracle.model.next()).answer(LINES);
    await expectText(page, 'Line 59');
    await expect.poll(() => distance(page)).toBeLessThanOrEqual(4);
    await page.getByRole('log').hover();
    await page.mouse.wheel(0, -2000);
    await expectText(page, 'Jump to latest');
    await expect.poll(() => hasStopped(page)).toBe(true);
    await write(page, 'The next question');
    await expect.poll(() => distance(page)).toBeLessThanOrEqual(4);
    (await oracle.model.next()).answer('Fine');
    await expectText(page, 'Fine');
  });
});
