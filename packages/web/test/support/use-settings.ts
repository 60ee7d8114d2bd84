import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { expect } from 'vitest';
import { expectText, useBrowser, type VisitOptions, type Visitor } from './browser.js';
import { useOracle } from './oracle.js';

const POST = join(import.meta.dirname, 'post-process.ts');
// Evaluated as text: the content security policy forbids a script tag.
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** The settings screens of every oracle. */
export const SCREENS = [
  'key',
  'permissions',
  'approvals',
  'memory',
  'preferences',
  'usage',
  'activity',
  'schedules',
  'files',
  'data',
];

/** The page of a host with the plugin of `post-process.ts`. */
export function useSettings(env: Record<string, string> = {}) {
  const oracle = useOracle(env, POST);
  const browser = useBrowser();
  const settle = (page: Page) => page.locator('main.main').waitFor();
  /** Sends a message; the model answers or does what the test says. */
  const write = async (page: Page, text: string) => {
    await page.locator('.composer textarea').fill(text);
    await page.keyboard.press('Enter');
  };
  return {
    oracle,
    write,
    /** Opens a settings screen, or the conversations, in a new profile. */
    async arrive(screen?: string, options?: VisitOptions): Promise<Visitor> {
      const visitor = await browser.visit(options);
      const hash = screen === undefined ? '' : `#/settings/${screen}`;
      await visitor.page.goto(`${oracle.url}/app${hash}`);
      await settle(visitor.page);
      return visitor;
    },
    async open(page: Page, screen: string): Promise<void> {
      await page.evaluate((hash) => {
        location.hash = hash;
      }, `#/settings/${screen}`);
      await page.locator('.page h1').waitFor();
    },
    async converse(page: Page, text: string, answer: string): Promise<void> {
      await write(page, text);
      const turn = await oracle.model.next();
      turn.answer(answer);
      await expectText(page, answer);
      await page.locator('.conv').first().waitFor({ state: 'attached' });
    },
  };
}

/** All violations that axe finds in the page. */
export async function findViolations(page: Page): Promise<string[]> {
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

/** Elements of the screen that overflow the window sideways. */
export const findOverflow = (page: Page): Promise<string[]> =>
  page.evaluate(() =>
    [...document.querySelectorAll('.page *')]
      .filter((element) => !element.closest('.table-wrap, .vh'))
      .filter((element) => {
        const { left, right, width } = element.getBoundingClientRect();
        return width > 0 && (right > innerWidth + 1 || left < -1);
      })
      .map(({ outerHTML }) => outerHTML.slice(0, 120)),
  );

/** Waits for the file that an action downloads; returns its path. */
export async function download(page: Page, action: () => Promise<void>): Promise<string> {
  const [file] = await Promise.all([page.waitForEvent('download'), action()]);
  const path = await file.path();
  expect(path).toBeTruthy();
  return path;
}
