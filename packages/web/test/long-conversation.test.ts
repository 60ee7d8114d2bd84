import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import { expectText, SCREENSHOTS } from './support/browser.js';
import { createLongConversation, NEEDLE } from './support/long-conversation.js';
import { usePage } from './support/use-page.js';

const { oracle, arrive, write } = usePage();

const MESSAGES = scale(5_000, 1_500);
/** 120 turns. */
const MAX_SHOWN = 240;

const countShown = (page: Page) => page.locator('.msg').count();
const first = (page: Page) => page.locator('.msg').first().textContent();

/** Scrolls up, as with the wheel, until a text is there. */
async function scrollUp(page: Page, isThere: () => Promise<boolean>): Promise<void> {
  await page.getByRole('log').hover();
  await expect
    .poll(
      async () => {
        await page.mouse.wheel(0, -3_000);
        return isThere();
      },
      { timeout: 240_000, interval: 50 },
    )
    .toBe(true);
}

it(`a conversation of ${MESSAGES} messages shows few of them at a time, wherever the reader is`, {
  timeout: 400_000,
}, async () => {
  const { page, consoleErrors } = await arrive();
  await page.goto(`${oracle.url}/app#/settings/data`);
  const buffer = Buffer.from(createLongConversation(MESSAGES));
  const file = { name: 'conversations.json', mimeType: 'application/json', buffer };
  await page.getByTestId('import').setInputFiles([file]);
  await page.getByText(/entries added/).waitFor({ timeout: 120_000 });
  await page.locator('.conv a', { hasText: `A conversation of ${MESSAGES}` }).click();
  await expectText(page, `Answer ${MESSAGES - 1}.`);
  expect(await countShown(page)).toBeLessThanOrEqual(MAX_SHOWN);

  // Further up, what is far below is not shown any more.
  const before = await first(page);
  await scrollUp(page, async () => (await page.getByText(`Answer ${MESSAGES - 1}.`).count()) === 0);
  expect(await first(page)).not.toBe(before);
  expect(await countShown(page)).toBeLessThanOrEqual(MAX_SHOWN);
  await page.screenshot({ path: `${SCREENSHOTS}/long.png` });

  // A message that was found far away is shown without everything in between.
  await page.keyboard.press('Control+k');
  const search = async () => {
    await page.getByRole('combobox').fill('');
    await page.getByRole('combobox').fill(NEEDLE);
    await page.locator('.palette mark').first().waitFor({ timeout: 2_000 });
    return page.getByRole('option').first().innerText();
  };
  await expect.poll(search, { timeout: 120_000 }).toContain(NEEDLE);
  await page.keyboard.press('Enter');
  const found = page.locator('.msg', { hasText: NEEDLE });
  await expect
    .poll(() =>
      found.evaluate((element) => {
        const { top, bottom } = element.getBoundingClientRect();
        return top >= 0 && bottom <= innerHeight;
      }),
    )
    .toBe(true);
  expect(await countShown(page)).toBeLessThanOrEqual(MAX_SHOWN);
  // Its neighbors are those of the conversation.
  await expect.poll(() => page.getByText('Answer 1001.').count()).toBe(1);
  await expect.poll(() => page.getByText('Answer 999.').count()).toBe(1);

  // Scrolling stays at the same message while older ones are added above.
  const log = page.getByRole('log');
  const place = () => found.evaluate((element) => element.getBoundingClientRect().top);
  const top = await place();
  await log.evaluate((element) => element.scrollBy(0, -200));
  await expect.poll(async () => Math.abs((await place()) - top - 200)).toBeLessThan(60);

  await page.getByRole('button', { name: 'Jump to latest' }).click();
  await expectText(page, `Answer ${MESSAGES - 1}.`);
  await write(page, 'One more');
  // The model summarizes the beginning before it answers.
  const answer = async () => {
    if (oracle.model.arrived > 0) (await oracle.model.next()).answer('Still here');
    return page.getByText('Still here').count();
  };
  await expect.poll(answer, { timeout: 60_000 }).toBe(1);
  expect(consoleErrors).toEqual([]);
});

const WORDS = 'lorem ipsum dolor '.repeat(20);

it.each([
  ['answer', '', (i: number) => `Paragraph ${i} ${WORDS}\n\n`, 'The end.'],
  ['program', '```js\n', (i: number) => `print(${i}, "${WORDS}")\n`, '```\n\nThe end.'],
])('a long %s is not rendered again from its start with every word', async (_, start, add, end) => {
  const { page, context } = await arrive();
  const devtools = await context.newCDPSession(page);
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' });
  const readSeconds = async () => {
    const { metrics } = await devtools.send('Performance.getMetrics');
    return metrics.find(({ name }) => name === 'ScriptDuration')?.value ?? 0;
  };
  await write(page, 'Describe everything');
  const turn = await oracle.model.next();
  const before = await readSeconds();
  turn.say(start);
  for (let i = 0; i < 400; i += 1) {
    turn.say(add(i));
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
  turn.say(end);
  turn.finish();
  await expect.poll(() => page.locator('.prose p').last().innerText()).toBe('The end.');
  expect((await readSeconds()) - before).toBeLessThan(10);
});
