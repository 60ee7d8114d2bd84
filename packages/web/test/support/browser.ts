import { mkdirSync } from 'node:fs';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, expect, inject } from 'vitest';

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
}

export interface Browsing {
  /** Opens a new profile. */
  visit(options?: VisitOptions): Promise<Visitor>;
}

/** Starting Chromium takes seconds, so the test files of a worker share it; it ends with the worker. */
let launched: Promise<Browser> | undefined;

/** Chromium, with profiles that are closed after the test file. */
export function useBrowser(): Browsing {
  let browser: Browser;
  const contexts: BrowserContext[] = [];
  beforeAll(async () => {
    mkdirSync(SCREENSHOTS, { recursive: true });
    launched ??= launch();
    browser = await launched;
  });
  afterAll(() => Promise.all(contexts.map((context) => context.close())));
  return {
    async visit({ width = 1200, height = 800, ...options } = {}) {
      const defaults = { colorScheme: 'light', locale: 'en-US' } as const;
      const viewport = { width, height };
      const context = await browser.newContext({ ...defaults, ...options, viewport });
      contexts.push(context);
      await context.grantPermissions(['clipboard-read', 'clipboard-write']);
      const consoleErrors: string[] = [];
      return { context, consoleErrors, page: await openTab(context, consoleErrors) };
    },
  };
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

/** Waits until the page shows this text. */
export async function expectText(page: Page, text: string | RegExp): Promise<void> {
  await expect.poll(() => page.getByText(text).first().isVisible()).toBe(true);
}
