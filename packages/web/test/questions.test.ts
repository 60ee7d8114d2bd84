import { join } from 'node:path';
import { expect, it } from 'vitest';
import { expectText } from './support/browser.js';
import { usePage } from './support/use-page.js';

const { oracle, arrive, write } = usePage(
  {},
  join(import.meta.dirname, 'support/asking-process.ts'),
);

/** Lets the model call a tool that asks; returns the page with the question. */
async function ask(tool: string) {
  const { page } = await arrive();
  await write(page, 'I am hungry');
  (await oracle.model.next()).call({ name: tool, input: {} });
  const card = page.getByRole('article', { name: 'A question for you' });
  await card.waitFor();
  return { page, card };
}

it('a question of a tool that can be answered with yes or no has a button for each', async () => {
  const { page, card } = await ask('book_table');
  await expectText(page, 'Book a table?');
  await expectText(page, 'Paused until you decide. You can close this page.');
  await page.reload();
  await card.getByRole('button', { name: 'No' }).click();
  const turn = await oracle.model.next();
  expect(turn.results.join()).toContain('not booked');
  turn.answer('All right, no table');
  await expectText(page, 'All right, no table');
  await expect.poll(() => card.count()).toBe(0);
});

it('a question with several fields is a form, which says what is wrong and keeps what was typed', async () => {
  const { page, card } = await ask('order_meal');
  await card.getByLabel('Dish').selectOption('Salad');
  await card.getByLabel('People').fill('0');
  await card.getByRole('button', { name: 'Send' }).click();
  await expect.poll(() => card.getByRole('alert').innerText()).toContain('people');
  expect(await card.getByLabel('People').inputValue()).toBe('0');
  await card.getByLabel('People').fill('2');
  await card.getByRole('button', { name: 'Send' }).click();
  const turn = await oracle.model.next();
  expect(turn.results.join()).toContain('{"dish":"Salad","people":2}');
  turn.answer('A salad for two');
  await expectText(page, 'A salad for two');
});

it('a question disappears when the user sends another message instead', async () => {
  const { page, card } = await ask('book_table');
  await write(page, 'Never mind');
  (await oracle.model.next()).answer('As you wish');
  await expectText(page, 'As you wish');
  await expect.poll(() => card.count()).toBe(0);
});
