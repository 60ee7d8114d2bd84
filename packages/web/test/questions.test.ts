import { join } from 'node:path';
import type { Locator } from 'playwright-core';
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
  await expectText(
    page,
    'Paused until you decide. You can close this page. If you send a new message, the answer continues without your decision.',
  );
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
  // The browser says that the number is missing.
  await card.getByRole('button', { name: 'Send' }).click();
  expect(await card.locator(':invalid:focus').inputValue()).toBe('');
  await card.getByLabel('People').fill('0');
  await card.getByRole('button', { name: 'Send' }).click();
  await expect
    .poll(() => card.getByRole('alert').innerText())
    .toContain('“People” is too low. Minimum: 1.');
  expect(await card.getByLabel('People').inputValue()).toBe('0');
  await card.getByLabel('People').fill('2');
  await card.getByRole('button', { name: 'Send' }).click();
  const turn = await oracle.model.next();
  expect(turn.results.join()).toContain('{"dish":"Salad","people":2}');
  turn.answer('A salad for two');
  await expectText(page, 'A salad for two');
});

it('a question about yes or no that the tool has not explained shows what it is about', async () => {
  const { card } = await ask('insure');
  expect(await card.innerText()).toMatch(/Is insured\s+Yes/);
  await card.getByRole('button', { name: 'Yes' }).click();
  (await oracle.model.next()).answer('Insured');
});

it('a value that cannot be read is the only error of a question', async () => {
  const { page, card } = await ask('choose_rows');
  const send = () => card.getByRole('button', { name: 'Send' }).click();
  await card.getByLabel('Rows').fill('[0]');
  await send();
  await expect.poll(() => card.getByRole('alert').innerText()).toContain('“Rows” is too low.');
  await card.getByLabel('Rows').fill('[0');
  await send();
  const text = '“Rows” does not have a valid value.';
  await expect.poll(() => card.getByRole('alert').allInnerTexts()).toEqual([text]);
  await card.getByLabel('Rows').fill('[1]');
  await send();
  (await oracle.model.next()).answer('The first row');
  await expectText(page, 'The first row');
});

it('a question starts with the defaults of its schema, and needs no JSON for lists and for what may be null', async () => {
  const { card } = await ask('plan_trip');
  const insured = card.getByRole('switch', { name: 'Is insured' });
  expect(await insured.isChecked()).toBe(true);
  await insured.uncheck();
  await card.getByLabel('Guide').fill('Wanjiru');
  await card.getByLabel('Stops').fill('Kitui\nMachakos');
  const months = card.getByRole('group', { name: 'Months' });
  const [name, label] = [months.locator('legend'), card.getByText('Stops', { exact: true })];
  const findText = (node: Element) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return range.getBoundingClientRect().x;
  };
  expect(await name.evaluate(findText)).toBe(await label.evaluate(findText));
  await months.getByLabel('July').check();
  await months.getByLabel('May').check();
  await card.getByRole('button', { name: 'Send' }).click();
  const turn = await oracle.model.next();
  expect(JSON.parse(turn.results.join())).toEqual({
    isInsured: false,
    guide: 'Wanjiru',
    stops: ['Kitui', 'Machakos'],
    months: ['May', 'July'],
  });
  turn.answer('Planned');
});

it('what was typed into a question survives a visit to another screen and a reload, until it is sent', async () => {
  const { page, card } = await ask('order_meal');
  await card.getByLabel('Dish').selectOption('Salad');
  await card.getByLabel('Note').fill('No onions');
  await card.getByLabel('People').fill('3');
  await page.getByRole('link', { name: 'New conversation' }).click();
  await expectText(page, 'Welcome.');
  await page.locator('.conv a').click();
  await expect.poll(() => card.getByLabel('Note').inputValue()).toBe('No onions');
  await page.reload();
  await expect.poll(() => card.getByLabel('People').inputValue()).toBe('3');
  await card.getByRole('button', { name: 'Send' }).click();
  const turn = await oracle.model.next();
  expect(turn.results.join()).toContain('{"dish":"Salad","people":3,"note":"No onions"}');
  turn.answer('Without onions');
  await expectText(page, 'Without onions');
  await expect.poll(() => card.count()).toBe(0);
  const drafts = () =>
    page.evaluate(() =>
      Object.keys(localStorage).filter((key) => /^sibyl-(draft|form):/.test(key)),
    );
  await expect.poll(drafts).toEqual([]);
});

it('a secret that a question asks for is hidden and not stored; who leaves is asked first', async () => {
  const { page, card } = await ask('log_in');
  const [password, pin] = [card.getByLabel('Password'), card.getByLabel('Pin')];
  await card.getByLabel('User').fill('wanjiru');
  await password.fill('orbit canvas');
  await pin.fill('4711');
  for (const secret of [password, pin]) {
    expect(await secret.getAttribute('type')).toBe('password');
    expect(await secret.getAttribute('autocomplete')).toBe('off');
  }
  await page.getByRole('link', { name: 'New conversation' }).click();
  const question = page.getByRole('dialog', { name: 'Leave without finishing?' });
  await question.getByRole('button', { name: 'Cancel' }).click();
  expect(await password.inputValue()).toBe('orbit canvas');
  const stored = await page.evaluate(() => JSON.stringify({ ...localStorage }));
  expect(stored).toContain('wanjiru');
  expect(stored).not.toMatch(/orbit|4711/);
  await card.getByRole('button', { name: 'Send' }).click();
  const turn = await oracle.model.next();
  expect(turn.results.join()).toContain('"password":"orbit canvas","pin":4711,"isTrusted":null}');
  turn.answer('Logged in');
  await expectText(page, 'Logged in');
  await page.getByRole('link', { name: 'New conversation' }).click();
  await expectText(page, 'Welcome.');
});

it('a question marks its conversation in the list until it is answered, also in another tab', async () => {
  const { page, card } = await ask('book_table');
  const row = page.locator('.conv');
  await expect.poll(() => row.innerText()).toContain('Needs you');
  const other = await page.context().newPage();
  await other.goto(`${oracle.url}/app`);
  await expect.poll(() => other.locator('.conv').innerText()).toContain('Needs you');
  await card.getByRole('button', { name: 'Yes' }).click();
  (await oracle.model.next()).answer('Enjoy your meal');
  await expectText(page, 'Enjoy your meal');
  await expect.poll(() => row.innerText()).not.toContain('Needs you');
  await expect.poll(() => other.locator('.conv').innerText()).not.toContain('Needs you');
});

it('a turn that waits has its icon beside the text, also on a narrow screen', async () => {
  const { page } = await ask('book_table');
  await page.setViewportSize({ width: 320, height: 640 });
  const line = page.locator('p.line', { hasText: 'Paused until you decide' });
  const findMiddle = async (box: Locator) => {
    const { y = 0, height = 0 } = (await box.boundingBox()) ?? {};
    return Math.round(y + height / 2);
  };
  const isBeside = async () => (await findMiddle(line)) === (await findMiddle(line.locator('.i')));
  await expect.poll(isBeside).toBe(true);
});

it('a question disappears when the user sends another message instead', async () => {
  const { page, card } = await ask('book_table');
  await write(page, 'Never mind');
  (await oracle.model.next()).answer('As you wish');
  await expectText(page, 'As you wish');
  await expect.poll(() => card.count()).toBe(0);
});
