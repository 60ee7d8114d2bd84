import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { expectText, SCREENSHOTS } from './support/browser.js';
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
  it.each([
    ['light', { colorScheme: 'light' as const }],
    ['dark', { colorScheme: 'dark' as const }],
    ['phone', { width: 390, height: 844 }],
  ])('axe finds no serious violation: %s', async (name, options) => {
    const { page, consoleErrors } = await arrive(options);
    expect(await findSeriousViolations(page)).toEqual([]);
    await page.screenshot({ path: `${SCREENSHOTS}/welcome-${name}.png` });
    await write(page, 'How much carbon is in the soil?');
    const turn = await oracle.model.next();
    turn.think('The user asks about soil carbon.');
    turn.say(ANSWER);
    turn.finish();
    await expectText(page, 'tonnes');
    await expect.poll(() => page.locator('.hljs-keyword').count()).toBeGreaterThan(0);
    expect(await findSeriousViolations(page)).toEqual([]);
    expect(await findOverflow(page)).toEqual([]);
    await page.screenshot({ path: `${SCREENSHOTS}/chat-${name}.png` });
    expect(consoleErrors).toEqual([]);
  });
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

/** The serious and critical violations that axe finds. */
async function findSeriousViolations(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  return page.evaluate(async () => {
    const { axe } = window as unknown as {
      axe: {
        run(): Promise<{ violations: { id: string; impact: string; nodes: { html: string }[] }[] }>;
      };
    };
    const { violations } = await axe.run();
    return violations
      .filter(({ impact }) => ['serious', 'critical'].includes(impact))
      .map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
  });
}
