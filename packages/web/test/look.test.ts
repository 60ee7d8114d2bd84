import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { select } from '../../../scripts/test-scale.ts';
import { expectText, SCREENSHOTS, waitForFile } from './support/browser.js';
import { usePage } from './support/use-page.js';

const { oracle, arrive, write } = usePage();
// Evaluated as text: the content security policy forbids a script tag.
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

describe('content of the page', () => {
  it('displays HTML of models, tools and users as text', async () => {
    const { page, consoleErrors } = await arrive();
    await page.evaluate(() => Object.assign(window, { hacked: false }));
    const attack = '<img src=x onerror="window.hacked=true"><script>window.hacked=true</script>';
    await write(page, attack);
    const turn = await oracle.model.next();
    turn.think(attack);
    turn.say(
      `${attack}\n\n[click](javascript:window.hacked=true) ![x](https://evil.example/p.png)`,
    );
    turn.call({
      name: 'show_table',
      input: { title: attack, columns: [attack], rows: [[attack]] },
    });
    const after = await oracle.model.next();
    after.say('done');
    after.finish();
    await expectText(page, 'done');
    expect(await page.evaluate(() => (window as unknown as { hacked: boolean }).hacked)).toBe(
      false,
    );
    expect(await page.locator('.thread img, .thread script').count()).toBe(0);
    expect(await page.locator('a[href^="javascript:"]').count()).toBe(0);
    expect(consoleErrors).toEqual([]);
  });
});

describe('accessibility of the page', () => {
  const windows = [
    ['light', { colorScheme: 'light' as const }],
    ['dark', { colorScheme: 'dark' as const }],
    ['phone', { width: 390, height: 844 }],
    ['phone-dark', { width: 390, height: 844, colorScheme: 'dark' as const }],
    ['small', { width: 320, height: 640 }],
    ['tablet', { width: 768, height: 1024 }],
    ['wide', { width: 2560, height: 1440 }],
    ['contrast', { contrast: 'more' as const }],
    ['german', { locale: 'de' }],
  ] as const;

  it.each(select<(typeof windows)[number]>(windows, 'light', 'phone-dark', 'contrast', 'german'))(
    'axe finds no violation: %s',
    async (name, options) => {
      const label = name === 'german' ? 'Ihre Nachricht' : 'Your message';
      const { page, consoleErrors } = await arrive(options, label);
      expect(await findViolations(page)).toEqual([]);
      await page.screenshot({ path: `${SCREENSHOTS}/welcome-${name}.png` });
      await page.getByLabel(label).fill('How much carbon is in the soil?');
      await page.keyboard.press('Enter');
      const turn = await oracle.model.next();
      turn.think('The user asks about soil carbon.');
      turn.say(ANSWER);
      turn.finish();
      await expectText(page, 'tonnes');
      await expect.poll(() => page.locator('.hljs-keyword').count()).toBeGreaterThan(0);
      expect(await findViolations(page)).toEqual([]);
      expect(await findOverflow(page)).toEqual([]);
      await page.screenshot({ path: `${SCREENSHOTS}/chat-${name}.png` });
      expect(consoleErrors).toEqual([]);
    },
  );
});

it('everything is within reach in a short window, such as at a zoom of 400 %', async () => {
  const { page } = await arrive({ width: 320, height: 256 });
  await write(page, 'How much carbon is in the soil?');
  (await oracle.model.next()).answer('Between 30 and 150 tonnes');
  await expectText(page, 'tonnes');
  const find = (selector: string) => page.locator(selector).boundingBox();
  await expect.poll(async () => (await find('.scroll'))?.height).toBeGreaterThan(90);
  for (const [selector, by] of [
    ['.dock', 1000],
    ['.banner', -1000],
  ] as const) {
    await page.mouse.move(160, by > 0 ? 20 : 240);
    const isVisible = async () => {
      await page.mouse.wheel(0, by);
      const { y = -1, height = 0 } = (await find(selector)) ?? {};
      return y >= 0 && y + height <= 256;
    };
    await expect.poll(isVisible).toBe(true);
  }
});

it('the search contains what is typed right after its shortcut', async () => {
  const { page } = await arrive();
  const findUrl = () =>
    performance.getEntriesByType('resource').find(({ name }) => /\/palette-.*\.js$/.test(name))
      ?.name;
  const url = await page.waitForFunction(findUrl);
  // An entry means that it was loaded.
  await waitForFile(page, String(await url.jsonValue()));
  await page.getByLabel('Your message').focus();
  await page.keyboard.press('Control+k');
  await page.keyboard.type('rain');
  await expect.poll(() => page.getByRole('combobox').inputValue()).toBe('rain');
  expect(await page.getByLabel('Your message').inputValue()).toBe('');
});

it('dialogs and the results of a search can be reached with the mouse in a short window', async () => {
  const { page } = await arrive({ width: 320, height: 256 });
  await page.keyboard.press('Control+k');
  await page.keyboard.type('a');
  const option = page.getByRole('option');
  await expect.poll(async () => (await option.first().boundingBox())?.height).toBeGreaterThan(20);
  const list = async () => (await page.locator('.palette-list').boundingBox())?.height;
  await expect.poll(list).toBeGreaterThan(100);
  await page.goto(`${oracle.url}/app#/settings/key`);
  await page.getByRole('button', { name: 'Add', exact: true }).click();
  const cancel = page.getByRole('dialog').getByRole('button', { name: 'Cancel' });
  await page.mouse.move(160, 128);
  const findEnd = async () => {
    await page.mouse.wheel(0, 1000);
    const { y = 0, height = 0 } = (await cancel.boundingBox()) ?? {};
    return y + height;
  };
  await expect.poll(findEnd).toBeLessThan(256);
});

it('forced colors show what is selected, and that a list of choices opens', async () => {
  const { page } = await arrive({ forcedColors: 'active' });
  await page.goto(`${oracle.url}/app#/settings/preferences`);
  const choice = page.getByLabel('Language of this page');
  const read = (name: string) =>
    choice.evaluate((each, key) => getComputedStyle(each).getPropertyValue(key), name);
  // Those of the page have a triangle as background, which is not shown.
  expect(await read('appearance')).toBe('auto');
  await page.goto(`${oracle.url}/app#/settings/approvals`);
  const link = page.locator('.side-link[aria-current]');
  expect(await link.evaluate((each) => getComputedStyle(each).outlineStyle)).toBe('solid');
});

it('a conversation whose title is not known yet has no empty heading', async () => {
  const { page } = await arrive();
  await write(page, 'How much carbon is in the soil?');
  (await oracle.model.next()).answer('Between 30 and 150 tonnes');
  await expectText(page, 'tonnes');
  await page.route('**/sessions?*', () => undefined);
  await page.reload();
  await expectText(page, 'tonnes');
  expect(await findViolations(page)).toEqual([]);
});

const ANSWER = `Between **30 and 150** tonnes per hectare in the first metre:

| Soil | t C/ha |
|---|---|
| Sand | 30 |
| Loam | 80 |

\`\`\`ts
const stock = density * depth * share;
\`\`\`
`;

/** Elements that overflow the window on the right. */
const findOverflow = (page: Page): Promise<string[]> =>
  page.evaluate(() =>
    [...document.querySelectorAll('main *')]
      .filter((element) => element.getBoundingClientRect().right > innerWidth + 1)
      .map(({ outerHTML }) => outerHTML.slice(0, 80)),
  );

/** The violations that axe finds, of any impact. */
async function findViolations(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  return page.evaluate(async () => {
    const { axe } = window as unknown as {
      axe: {
        run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }>;
      };
    };
    const { violations } = await axe.run();
    return violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
  });
}

it('a long formula within a line scrolls on a narrow screen instead of widening the conversation', async () => {
  const { page } = await arrive({ width: 320, height: 640 });
  await write(page, 'Add them up');
  const terms = Array.from({ length: 40 }, (_, i) => `a_{${i}}`).join('+');
  (await oracle.model.next()).answer(`The sum is $${terms}$, and that is all.`);
  await page.locator('math').waitFor();
  const measure = () =>
    page.locator('.scroll').evaluate((element) => element.scrollWidth - element.clientWidth);
  await expect.poll(measure).toBe(0);
  const { width, scrollWidth } = await page.locator('.math-inline').evaluate((element) => ({
    width: element.clientWidth,
    scrollWidth: element.scrollWidth,
  }));
  expect(scrollWidth).toBeGreaterThan(width);
});

it('long formulas can be scrolled with the keyboard', async () => {
  const { page } = await arrive({ width: 320, height: 640 });
  await write(page, 'Add them up');
  const terms = Array.from({ length: 40 }, (_, i) => `a_{${i}}`).join('+');
  (await oracle.model.next()).answer(`The sum $${terms}$ in its own line:\n\n$$${terms}$$`);
  await expect.poll(() => page.locator('math').count()).toBe(2);
  expect(await findViolations(page)).toEqual([]);
});

it('a diagram is drawn again when the theme changes', async () => {
  const { page } = await arrive();
  await write(page, 'Draw it');
  (await oracle.model.next()).answer('```mermaid\ngraph TD\n  A[Start] --> B[End]\n```');
  const diagram = page.locator('.diagram img');
  const light = await diagram.getAttribute('src');
  await page.emulateMedia({ colorScheme: 'dark' });
  await expect.poll(() => diagram.getAttribute('src')).not.toBe(light);
  const dark = await diagram.getAttribute('src');
  await page.getByRole('button', { name: 'You: settings and theme' }).click();
  await page.getByText('Light', { exact: true }).click();
  await expect.poll(() => diagram.getAttribute('src')).not.toBe(dark);
});

const CLASSES =
  'classDiagram\n class Animal{ +int age\n +String gender\n +isMammal() }\n Animal <|-- Duck';

it('a diagram has the size that it has without the content security policy, so its texts fit', async () => {
  const { page, context } = await arrive();
  const free = await context.browser()?.newContext({ bypassCSP: true });
  const other = await free?.newPage();
  if (!other) throw new Error('no browser');
  await other.goto(`${oracle.url}/app`);
  const sizes = [];
  for (const each of [page, other]) {
    await write(each, 'Draw it');
    (await oracle.model.next()).answer(`\`\`\`mermaid\n${CLASSES}\n\`\`\``);
    const diagram = each.locator('.diagram img');
    await expect.poll(() => diagram.evaluate((img: HTMLImageElement) => img.complete)).toBe(true);
    sizes.push(
      await diagram.evaluate((img: HTMLImageElement) => [img.naturalWidth, img.naturalHeight]),
    );
  }
  await free?.close();
  const [[width = 0, height = 0] = [], [wanted = 0, high = 0] = []] = sizes;
  expect(Math.abs(width - wanted)).toBeLessThanOrEqual(6);
  expect(Math.abs(height - high)).toBeLessThanOrEqual(2);
});

it('a printed conversation has all messages, in dark ink also if the page is dark', async () => {
  const { page } = await arrive({ colorScheme: 'dark' });
  await write(page, 'Describe everything');
  const paragraphs = Array.from({ length: 120 }, (_, i) => `Paragraph ${i}.`);
  (await oracle.model.next()).answer(paragraphs.join('\n\n'));
  await expectText(page, 'Paragraph 119.');
  const countPages = async () =>
    (await page.pdf()).toString('latin1').match(/\/Type \/Page\b/g)?.length;
  await expect.poll(countPages).toBeGreaterThan(2);
  await page.emulateMedia({ media: 'print', colorScheme: 'dark' });
  const ink = () =>
    page
      .getByText('Paragraph 0.')
      .evaluate((element) => Number(getComputedStyle(element).color.match(/\d+/)?.[0]));
  await expect.poll(ink).toBeLessThan(64);
});
