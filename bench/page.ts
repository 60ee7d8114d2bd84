// How fast the page is in Chromium: a conversation of 5,000 messages, from the click to its last message, and frames
// while it scrolls; then Lighthouse as on a mobile phone.
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { type Browser, chromium, type Page } from 'playwright-core';
import { findChromium } from '../packages/web/test/support/chromium.ts';
import { createLongConversation } from '../packages/web/test/support/long-conversation.ts';
import { installLocked } from '../scripts/third-party.ts';
import {
  atLeast,
  atMost,
  describeMachine,
  type Figure,
  formatFigures,
  median,
  quantile,
  reportFigures,
} from './support/figures.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';

const MESSAGES = 5_000;
const ROUNDS = 7;
const OPEN_MS = 1_000;
/** Two frames at 60 per second: one may be late. */
const FRAME_MS = 34;
const SCROLL_SECONDS = 5;
const DEBUG_PORT = 9333;
const LIGHTHOUSE = 'compat/lighthouse';

const TARGETS = {
  performance: 0.95,
  accessibility: 1,
  'best-practices': 1,
  seo: 1,
} as const;
type Category = keyof typeof TARGETS;

async function main(): Promise<void> {
  const executablePath = findChromium();
  installLocked(LIGHTHOUSE);
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-page-'));
  const host = await startServer(new URL('./servers/host.ts', import.meta.url), {
    env: { PORT: '0', DATA_DIR: dataDir, MODEL: 'offline' },
  });
  const browser = await chromium.launch({
    executablePath,
    args: ['--headless', '--no-sandbox', `--remote-debugging-port=${DEBUG_PORT}`],
  });
  try {
    const figures = [...(await measureConversation(browser, host)), ...(await audit(host))];
    console.log(`${formatFigures('page', figures)}\n\nMeasured on ${describeMachine()}.`);
    await reportFigures(figures);
    if (figures.some(({ target }) => target?.isMet === false)) process.exitCode = 1;
  } finally {
    await browser.close();
    await host.stop();
    rmSync(dataDir, { recursive: true, force: true });
  }
}

async function measureConversation(browser: Browser, { url }: ServerProcess): Promise<Figure[]> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  const page = await context.newPage();
  await page.goto(`${url}/app#/settings/data`);
  const buffer = Buffer.from(createLongConversation(MESSAGES));
  const file = { name: 'conversations.json', mimeType: 'application/json', buffer };
  await page.getByTestId('import').setInputFiles([file]);
  await page.getByText(/entries added/).waitFor({ timeout: 300_000 });
  await page.locator('.conv a').waitFor();
  const clicks: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    await page.goto(`${url}/app#/`);
    await page.locator('.welcome').waitFor();
    await page.locator('.conv a').waitFor();
    clicks.push(await measureClick(page));
  }
  const loads: number[] = [];
  for (let round = 0; round < ROUNDS; round++) loads.push(await measureReload(page));
  const frames = await measureFrames(page);
  const shown = await page.locator('.msg').count();
  await context.close();
  const slow = quantile(frames, 0.95);
  return [
    toFigure(`click to last of ${MESSAGES} messages, ms`, median(clicks), OPEN_MS),
    toFigure('reload to last message, ms', median(loads), OPEN_MS),
    toFigure('95 % of frames while scrolling up, ms', slow, FRAME_MS),
    { name: 'messages in the document afterwards', ours: String(shown) },
  ];
}

const toFigure = (name: string, value: number, most: number): Figure => ({
  name,
  ours: value.toFixed(0),
  target: atMost(most, value, ' ms'),
});

/** In the page, so that the time of the test's own messages does not count. */
const measureClick = (page: Page): Promise<number> =>
  page.evaluate(
    async (last) => {
      const start = performance.now();
      document.querySelector<HTMLElement>('.conv a')?.click();
      for (;;) {
        await new Promise(requestAnimationFrame);
        const text = [...document.querySelectorAll('.msg')].at(-1)?.textContent ?? '';
        if (text.includes(last)) return performance.now() - start;
      }
    },
    `Answer ${MESSAGES - 1}.`,
  );

/** From the navigation to the frame that shows the last message. */
async function measureReload(page: Page): Promise<number> {
  await page.reload({ waitUntil: 'commit' });
  return page.evaluate(
    async (last) => {
      for (;;) {
        await new Promise(requestAnimationFrame);
        const text = [...document.querySelectorAll('.msg')].at(-1)?.textContent ?? '';
        if (text.includes(last)) return performance.now();
      }
    },
    `Answer ${MESSAGES - 1}.`,
  );
}

/** The time between frames while the reader scrolls up at a constant pace. */
const measureFrames = (page: Page): Promise<number[]> =>
  page.evaluate(async (seconds) => {
    const log = document.querySelector('[role="log"]');
    const frames: number[] = [];
    const end = performance.now() + seconds * 1000;
    for (let before = performance.now(); before < end; ) {
      await new Promise(requestAnimationFrame);
      const now = performance.now();
      frames.push(now - before);
      before = now;
      log?.scrollBy(0, -60);
    }
    return frames.slice(1);
  }, SCROLL_SECONDS);

interface LighthouseResult {
  readonly lhr: {
    readonly categories: Readonly<Record<string, { readonly score: number | null }>>;
    readonly audits: Readonly<
      Record<
        string,
        { readonly score: number | null; readonly title: string; displayValue?: string }
      >
    >;
  };
}

/** Lighthouse with its own settings for a mobile phone: a slow network and a fourth of the processor. */
async function audit({ url }: ServerProcess): Promise<Figure[]> {
  const entry = createRequire(join(process.cwd(), LIGHTHOUSE, 'package.json')).resolve(
    'lighthouse',
  );
  const { default: lighthouse } = (await import(pathToFileURL(entry).href)) as {
    default(url: string, flags: object): Promise<LighthouseResult>;
  };
  const onlyCategories = Object.keys(TARGETS);
  const { lhr } = await lighthouse(`${url}/app/`, { port: DEBUG_PORT, onlyCategories });
  for (const { score, title, displayValue = '' } of Object.values(lhr.audits))
    if (score !== null && score < 0.9) console.log(`${score.toFixed(2)} ${title} ${displayValue}`);
  return (Object.keys(TARGETS) as Category[]).map((category) => {
    const score = lhr.categories[category]?.score ?? 0;
    return {
      name: `Lighthouse, ${category}`,
      ours: score.toFixed(2),
      target: atLeast(TARGETS[category], score),
    };
  });
}

await main();
