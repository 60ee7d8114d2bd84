import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import type { Visitor } from './support/browser.js';
import { expectText, openTab } from './support/browser.js';
import { usePage } from './support/use-page.js';

const { oracle, arrive, write, converse } = usePage({ APPROVALS: 'remember' });

/** Opens a conversation on the page; `post` and `remove` are requests of another program of the same user. */
async function openConversation() {
  const { page } = await arrive();
  let authorization = '';
  page.on('request', (request) => {
    authorization = request.headers().authorization ?? authorization;
  });
  await converse(page, 'Hello', 'Good day');
  const sessionId = page.url().split('/').at(-1) ?? '';
  const headers = { 'x-auth-type': 'ucan', 'content-type': 'application/json' };
  const call = (path: string, init: RequestInit) =>
    fetch(`${oracle.url}${path}`, { ...init, headers: { ...headers, authorization } });
  const post = (path: string, body: object) =>
    call(path, { method: 'POST', body: JSON.stringify(body) });
  return {
    page,
    sessionId,
    post,
    remove: () => call(`/sessions/${sessionId}`, { method: 'DELETE' }),
  };
}

const tool = (page: Page) => page.locator('.tool').last().innerText();

it('a conversation that waits for a tool of another program says so, and does not need the user', async () => {
  const { page, sessionId, post } = await openConversation();
  const weather = { name: 'get_weather', parameters: { type: 'object', properties: {} } };
  const asked = post('/v1/chat/completions', {
    model: 'default',
    tools: [{ type: 'function', function: weather }],
    messages: [{ role: 'user', content: 'Will it rain?' }],
    metadata: { session_id: sessionId },
  });
  (await oracle.model.next()).call({ name: 'get_weather', input: {} });
  expect((await asked).status).toBe(200);
  await expectText(page, /^Paused until another program answers/);
  expect(await tool(page)).toBe('Waiting to use “get weather”');
  expect(await page.getByText('Needs you').count()).toBe(0);
  await page.reload();
  await expectText(page, /^Paused until another program answers/);
  await write(page, 'Never mind');
  (await oracle.model.next()).answer('As you wish');
  await expectText(page, 'As you wish');
  await expectText(page, 'Answer stopped');
  expect(await tool(page)).toBe('Couldn’t use “get weather”');
});

it('a call that waits for approval does not wait any more once another program has written', async () => {
  const { page, sessionId, post } = await openConversation();
  await write(page, 'Remember that I like tea');
  (await oracle.model.next()).call({ name: 'remember', input: { fact: 'Likes tea' } });
  await page.locator('.approval').waitFor();
  await expectText(page, 'Needs you');
  expect(await tool(page)).toBe('Waiting to use “remember”');
  const sent = post(`/messages/${sessionId}`, { message: 'Something else' });
  (await oracle.model.next()).answer('All right');
  expect((await sent).status).toBe(200);
  await expectText(page, 'All right');
  await expect.poll(() => page.locator('.approval').count()).toBe(0);
  expect(await tool(page)).toBe('Couldn’t use “remember”');
});

/** Deletes the only conversation in another tab, which can be undone there for ten seconds. */
async function deleteInOtherTab({ page, context, consoleErrors }: Visitor): Promise<Page> {
  const other = await openTab(context, consoleErrors);
  await other.goto(`${oracle.url}/app`);
  await other.locator('.conv').hover();
  await other.locator('.conv').getByRole('button').click();
  await other.getByRole('menuitem', { name: 'Delete' }).click();
  await expect.poll(() => page.locator('.conv').count()).toBe(0);
  return other;
}

it('another answer and an approval keep a conversation that another tab is about to delete', async () => {
  const visitor = await arrive();
  const { page } = visitor;
  await converse(page, 'Hello', 'Good day');
  const first = await deleteInOtherTab(visitor);
  await page.getByRole('button', { name: 'Regenerate' }).click();
  (await oracle.model.next()).call({ name: 'remember', input: { fact: 'Says hello' } });
  await expect.poll(() => page.locator('.conv').count()).toBe(1);
  await first.close();
  await page.locator('.approval').waitFor();
  await deleteInOtherTab(visitor);
  await page.getByRole('button', { name: 'Approve' }).click();
  (await oracle.model.next()).answer('I know you');
  await expectText(page, 'I know you');
  expect(await page.evaluate(() => localStorage.getItem('sibyl-deletions'))).toBe('[]');
});

it('a deletion is undone with a shortcut, unless a field with text has the focus', async () => {
  const { page } = await arrive();
  await converse(page, 'Hello', 'Good day');
  await page.locator('.conv').hover();
  await page.locator('.conv').getByRole('button').click();
  await page.getByRole('menuitem', { name: 'Delete' }).click();
  await expect.poll(() => page.locator('.conv').count()).toBe(0);
  const box = page.getByLabel('Your message');
  await box.fill('A new beginning');
  await box.press('Control+z');
  expect(await page.locator('.conv').count()).toBe(0);
  await box.fill('');
  await box.press('Control+z');
  await expect.poll(() => page.locator('.conv').count()).toBe(1);
  expect(await page.getByRole('button', { name: 'Undo' }).count()).toBe(0);
});

it('another answer that waits for the current one can be withdrawn', async () => {
  const { page } = await arrive();
  await converse(page, 'Hello', 'Good day');
  await write(page, 'And now?');
  const turn = await oracle.model.next();
  turn.say('Let me think. ');
  await expectText(page, 'Let me think.');
  await page.getByRole('button', { name: 'Regenerate' }).first().click();
  await expectText(page, 'The new answer follows when the current one is complete.');
  const withdraw = page.getByRole('button', { name: 'Withdraw' });
  await withdraw.click();
  // Else the current answer may be complete, and the new one begin, before the host knows.
  await withdraw.waitFor({ state: 'detached' });
  turn.answer('Done.');
  await expectText(page, 'Let me think. Done.');
  await page.getByRole('button', { name: 'Stop' }).waitFor({ state: 'detached' });
  await converse(page, 'And then?', 'Nothing');
  await expectText(page, 'Let me think. Done.');
});

it('a conversation that another program has deleted says so, also beside a message that was not sent', async () => {
  const { page, sessionId, remove } = await openConversation();
  await page.route(`**/messages/${sessionId}`, (route) =>
    route.request().method() === 'POST' ? route.abort() : route.continue(),
  );
  await write(page, 'Are you there?');
  await page.getByRole('button', { name: 'Discard' }).waitFor();
  expect((await remove()).status).toBe(200);
  await expectText(page, /^This conversation has been deleted/);
});
