import { mkdirSync } from 'node:fs';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { beforeAll, expect, inject, onTestFinished } from 'vitest';

const ARGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-background-networking',
  '--no-first-run',
];

/** Where screenshots are stored. */
export const SCREENSHOTS = 'test-output/page';

/** A user with a new browser profile. */
export interface Visitor {
  readonly page: Page;
  readonly context: BrowserContext;
  /** Errors in the browser console. */
  readonly consoleErrors: string[];
}

export interface VisitOptions {
  readonly width?: number;
  readonly height?: number;
  readonly colorScheme?: 'light' | 'dark';
  readonly locale?: string;
  readonly contrast?: 'more';
  readonly forcedColors?: 'active';
}

export interface Browsing {
  /** Opens a new profile, which is closed after the test. */
  visit(options?: VisitOptions): Promise<Visitor>;
}

/** Starting Chromium takes seconds, so the test files of a worker share it; it ends with the worker. */
let launched: Promise<Browser> | undefined;

export function useBrowser(): Browsing {
  let browser: Browser;
  beforeAll(async () => {
    mkdirSync(SCREENSHOTS, { recursive: true });
    launched ??= launch();
    browser = await launched;
  });
  return {
    async visit({ width = 1200, height = 800, ...options } = {}) {
      const defaults = { colorScheme: 'light', locale: 'en-US' } as const;
      const viewport = { width, height };
      const context = await browser.newContext({ ...defaults, ...options, viewport });
      onTestFinished(async ({ task }) => {
        if (task.result?.state === 'fail') await printPages(context);
        await context.close();
      });
      await context.grantPermissions(['clipboard-read', 'clipboard-write']);
      const consoleErrors: string[] = [];
      return { context, consoleErrors, page: await openTab(context, consoleErrors) };
    },
  };
}

async function printPages(context: BrowserContext): Promise<void> {
  for (const page of context.pages())
    process.stderr.write(`${page.url()} shows:\n${await page.innerText('body')}\n`);
}

async function launch(): Promise<Browser> {
  const browser = await chromium.launch({ executablePath: inject('chromium'), args: ARGS });
  browser.once('disconnected', () => {
    launched = undefined;
  });
  return browser;
}

/** Opens another tab of a profile. */
export async function openTab(context: BrowserContext, consoleErrors: string[]): Promise<Page> {
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  page.on('pageerror', ({ message }) => consoleErrors.push(message));
  page.on('console', (message) => {
    if (message.type() === 'error') consoleErrors.push(message.text());
  });
  return page;
}

/** Chooses the language of the page, in this tab and the others of its profile. */
export const chooseLanguage = (page: Page, language: string): Promise<void> =>
  page.evaluate((chosen) => {
    localStorage.setItem('sibyl-language', chosen);
    // The browser reports it only to the other tabs.
    dispatchEvent(new Event('storage'));
  }, language);

/** Waits until the page has evaluated a file of its code, and rendered what follows. As text, since Vitest changes imports. */
export const waitForFile = (page: Page, url: string): Promise<unknown> =>
  page.evaluate(`import('${url}').then(() => new Promise(requestAnimationFrame))`);

/** Waits until the page shows this text. */
export async function expectText(page: Page, text: string | RegExp): Promise<void> {
  await expect.poll(() => page.getByText(text).first().isVisible()).toBe(true);
}
