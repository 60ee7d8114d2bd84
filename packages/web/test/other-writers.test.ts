import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { expectText } from './support/browser.js';
import { usePage } from './support/use-page.js';

const { oracle, arrive, write, converse } = usePage({ APPROVALS: 'remember' });

/** Opens a conversation on the page; `post` is another program of the same user. */
async function openConversation() {
  const { page } = await arrive();
  let authorization = '';
  page.on('request', (request) => {
    authorization = request.headers().authorization ?? authorization;
  });
  await converse(page, 'Hello', 'Good day');
  const sessionId = page.url().split('/').at(-1) ?? '';
  const headers = { 'x-auth-type': 'ucan', 'content-type': 'application/json' };
  const post = (path: string, body: object) =>
    fetch(`${oracle.url}${path}`, {
      method: 'POST',
      headers: { ...headers, authorization },
      body: JSON.stringify(body),
    });
  return { page, sessionId, post };
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
