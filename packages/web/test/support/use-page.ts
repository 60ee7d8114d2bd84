import type { Page } from 'playwright-core';
import { expectText, useBrowser, type VisitOptions, type Visitor } from './browser.js';
import { type RunningOracle, useOracle } from './oracle.js';

/** The page of a running server, and actions of its visitors. */
export interface PageInUse {
  readonly oracle: RunningOracle;
  /** Opens the page in a new profile; `label` is that of the message box. */
  arrive(options?: VisitOptions, label?: string): Promise<Visitor>;
  write(page: Page, text: string): Promise<void>;
  /** Sends a message and lets the model answer it. */
  converse(page: Page, text: string, answer: string): Promise<void>;
}

export function usePage(env: Record<string, string> = {}, main?: string): PageInUse {
  const oracle = useOracle(env, main);
  const browser = useBrowser();
  const write = async (page: Page, text: string) => {
    await page.getByLabel('Your message').fill(text);
    await page.keyboard.press('Enter');
  };
  return {
    oracle,
    write,
    async arrive(options, label = 'Your message') {
      const visitor = await browser.visit(options);
      await visitor.page.goto(`${oracle.url}/app`);
      await visitor.page.getByLabel(label).waitFor();
      return visitor;
    },
    async converse(page, text, answer) {
      await write(page, text);
      const turn = await oracle.model.next();
      turn.say(answer);
      turn.finish();
      await expectText(page, answer);
    },
  };
}
