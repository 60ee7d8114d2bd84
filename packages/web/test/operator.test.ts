import { globSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { findFreePort } from '../../host/test/support/free-port.js';
import { startHost, type TestHost } from '../../host/test/support/host.js';
import { joinSession } from '../../host/test/support/session-socket.js';
import { openSession, stream } from '../../host/test/support/stream.js';
import { startTcpProxy } from '../../host/test/support/tcp-proxy.js';
import { createTestDatabase } from '../../host/test/support/test-database.js';
import { TestUser } from '../../host/test/support/user.js';
import { expectText, openTab, SCREENSHOTS, useBrowser } from './support/browser.js';

const TIMEOUT = { timeout: 300_000 };
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const browsing = useBrowser();
let host: TestHost;
beforeAll(async () => {
  host = await startHost({ env: { RATE_LIMIT_PER_MINUTE: '200' } });
}, 120_000);
afterAll(() => host?.close());

/** Writes to the database of the host, from another process. */
function write(...statements: readonly string[]): void {
  const [file = ''] = globSync(join(host.dataDir, '*.db')).filter((name) => !/search/.test(name));
  const database = new DatabaseSync(file);
  for (const statement of statements) database.exec(statement);
  database.close();
}

/** As `sibyl operators add` does. */
const addOperator = async (did: string) =>
  write(`insert into operators (owner, created_at) values ('${did}', ${Date.now()})`);

/** Opens the page, becomes an operator and waits for the first view. */
async function enter(page: Page, url: string, add: typeof addOperator): Promise<void> {
  await page.goto(`${url}/app/operator`);
  const command = await page.getByText('sibyl operators add').innerText();
  await add(command.replace('sibyl operators add ', '').trim());
  await expect
    .poll(
      async () => {
        await page.reload();
        await page.waitForTimeout(1_000);
        return page.locator('.stats').isVisible();
      },
      { timeout: 120_000 },
    )
    .toBe(true);
}

async function findViolations(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  return page.evaluate(async () => {
    const { axe: run } = window as unknown as {
      axe: { run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> };
    };
    const { violations } = await run.run();
    return violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
  });
}

const WIDTHS = [390, 768, 1440, 2560];

async function takePictures(page: Page, name: string): Promise<void> {
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 1000 });
      await page.screenshot({
        path: `${SCREENSHOTS}/operator-${name}-${width}-${colorScheme}.png`,
      });
    }
  }
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize({ width: 1200, height: 800 });
}

it(
  '/app/operator shows an operator every view, and a stranger only how to become one',
  TIMEOUT,
  async () => {
    const alice = new TestUser(host);
    const sessionId = await openSession(alice);
    await (await stream(alice, sessionId, { message: 'Please answer briefly' })).toEnd();
    await joinSession(alice, sessionId);
    const mallory = new TestUser(host);
    await Promise.all(Array.from({ length: 400 }, () => mallory.request('GET', '/sessions')));
    const { page, consoleErrors } = await browsing.visit();
    await page.goto(`${host.url}/app/operator`);
    await expectText(page, 'This page is for operators');
    await enter(page, host.url, addOperator);

    await expectText(page, 'Healthy');
    await expectText(page, 'Time to the first text, last 24 hours');
    await expect
      .poll(() => page.getByRole('img', { name: /median .* slowest 5 %/ }).isVisible())
      .toBe(true);
    // Who floods the host, without looking for it.
    const limited = page.getByRole('region', { name: 'Users who reached a limit' });
    await expect.poll(() => limited.getByText(mallory.did.slice(-6)).isVisible()).toBe(true);
    expect(await findViolations(page)).toEqual([]);
    await takePictures(page, 'overview');

    await page.getByRole('link', { name: 'Turns' }).click();
    await page.locator('.table a').first().click();
    await expectText(page, 'Arguments are hidden');
    await expectText(page, 'set_user_preferences');
    expect(await findViolations(page)).toEqual([]);
    await takePictures(page, 'turn');

    await page.getByRole('link', { name: 'Users' }).click();
    const row = page.getByRole('row', { name: new RegExp(alice.did.slice(-6)) });
    await expect.poll(() => row.isVisible()).toBe(true);
    // Turns, failed, tokens, cost, sockets.
    await expect.poll(() => row.getByRole('cell').nth(1).innerText()).toBe('1');
    await expect.poll(() => row.getByRole('cell').nth(5).innerText()).toBe('1');
    await expectText(page, /Reached a limit \d+ times/);
    await row.getByRole('button', { name: 'Block' }).click();
    await expectText(page, 'Blocked');
    expect((await alice.request('GET', '/sessions')).body.code).toBe('caller_blocked');
    expect(await findViolations(page)).toEqual([]);
    await takePictures(page, 'users');
    await row.getByRole('button', { name: 'Unblock' }).click();
    await expect.poll(async () => (await alice.request('GET', '/sessions')).status).toBe(200);

    await page.getByRole('link', { name: 'Plugins' }).click();
    await expectText(page, 'set MCP_SERVERS');
    expect(await findViolations(page)).toEqual([]);
    await page.getByRole('link', { name: 'Jobs and schedules' }).click();
    await expectText(page, 'Documents to read');
    expect(await findViolations(page)).toEqual([]);
    await page.getByRole('link', { name: 'Audit log' }).click();
    await expectText(page, 'Unblocked a user');
    await expectText(page, 'Blocked a user');
    expect(await findViolations(page)).toEqual([]);
    expect(consoleErrors.filter((text) => !/40[13]/.test(text))).toEqual([]);

    // On a phone the sections are behind the menu.
    await page.setViewportSize({ width: 390, height: 800 });
    const sections = page.getByRole('button', { name: 'Show sections' });
    await sections.press('Enter');
    const overview = page.getByRole('link', { name: 'Overview' });
    const hasFocus = (element: HTMLElement | SVGElement) => element === document.activeElement;
    await expect.poll(() => overview.evaluate(hasFocus)).toBe(true);
    await page.keyboard.press('Escape');
    await expect.poll(() => sections.evaluate(hasFocus)).toBe(true);
    await sections.click();
    await overview.click();
    await expectText(page, 'Healthy');
    expect(
      await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth),
    ).toBeLessThanOrEqual(0);

    // An address that names no section shows the first one.
    await page.evaluate(() => {
      location.hash = '#toString';
    });
    await expectText(page, 'Healthy');

    for (const [language, text] of [
      ['de', 'Läuft gerade'],
      ['ar', 'قيد التنفيذ الآن'],
    ] as const) {
      await page.evaluate((value) => localStorage.setItem('sibyl-language', value), language);
      await page.reload();
      await expectText(page, text);
      expect(await findViolations(page)).toEqual([]);
      await page.screenshot({ path: `${SCREENSHOTS}/operator-${language}.png` });
    }
    await expect.poll(() => page.evaluate(() => document.documentElement.dir)).toBe('rtl');
  },
);

it('/app/operator finds the turns of one user, of one cause and that failed', TIMEOUT, async () => {
  const [alice, bob] = [new TestUser(host), new TestUser(host)];
  for (const user of [alice, bob]) {
    const sessionId = await openSession(user);
    await (await stream(user, sessionId, { message: 'Hello' })).toEnd();
  }
  write(
    `update runs set status = 'failed', cause = 'wrong_key', updated_at = ${Date.now()} where owner = '${bob.did}'`,
  );
  const { page } = await browsing.visit();
  await enter(page, host.url, addOperator);
  const rows = page.locator('tbody tr');
  const links = (user: TestUser) => rows.getByRole('link', { name: user.did.slice(-6) });

  // From the overview to the turns that failed for a cause.
  await page.getByRole('link', { name: /key/ }).click();
  await expect.poll(() => links(bob).count()).toBe(1);
  expect(await rows.count()).toBe(1);
  expect(await findViolations(page)).toEqual([]);
  await takePictures(page, 'filter');
  await page.getByRole('link', { name: 'Show all' }).click();
  await expect.poll(() => links(alice).count()).toBe(1);
  await page.getByLabel('State').selectOption('failed');
  await page.getByRole('button', { name: 'Find' }).click();
  await expect.poll(() => links(alice).count()).toBe(0);
  await expect.poll(() => links(bob).count()).toBe(1);

  // From a user to their turns, and to one of them; the list stays.
  await page.getByRole('navigation').getByRole('link', { name: 'Users' }).click();
  await page.getByLabel('User', { exact: true }).fill(` ${alice.did} `);
  await page.keyboard.press('Enter');
  await expect.poll(() => rows.count()).toBe(1);
  await links(alice).click();
  await expect.poll(() => page.url()).toContain('#turns?user=did%3Akey');
  await expect.poll(() => rows.count()).toBe(1);
  await rows.getByRole('link').first().click();
  await expectText(page, 'Arguments are hidden');
  await expect.poll(() => links(alice).count()).toBe(1);
  expect(await page.getByLabel('User', { exact: true }).inputValue()).toBe(alice.did);

  await page.getByLabel('User', { exact: true }).fill('alice');
  await page.keyboard.press('Enter');
  await expect.poll(() => page.getByRole('alert').innerText()).toContain('user');
});

it('/app/operator shows older entries of the audit log on demand', TIMEOUT, async () => {
  const ids = Array.from({ length: 900 }, (_, i) => `00000000-0000-7000-8000-${i + 100_000}`);
  write(
    ...ids.map(
      (id, i) =>
        `insert into operator_actions (owner, id, action, target, created_at) values ('did:key:zOld', '${id}', 'block_user', 'did:key:z${i}', ${i})`,
    ),
  );
  const { page } = await browsing.visit();
  await enter(page, host.url, addOperator);
  await page.getByRole('link', { name: 'Audit log' }).click();
  const rows = page.locator('tbody tr');
  const more = page.getByRole('button', { name: 'Show more' });
  for (const count of [100, 200, 400, 800]) {
    await expect.poll(() => rows.count()).toBe(count);
    await more.click();
  }
  await expectText(page, 'z0');
  await expect.poll(() => more.count()).toBe(0);
  expect(await findViolations(page)).toEqual([]);
});

it(
  '/app/operator says where a list of turns ends, in rows of the same height',
  TIMEOUT,
  async () => {
    const { page } = await browsing.visit({ width: 390 });
    await enter(page, host.url, addOperator);
    await page.route('**/operator/turns*', (route) => {
      const limit = Number(new URL(route.request().url()).searchParams.get('limit'));
      const turns = Array.from({ length: limit }, (_, i) => ({
        runId: `00000000-0000-7000-8000-${i + 100_000}`,
        user: 'did:key:zAlice',
        status: 'finished',
        models: ['offline'],
        inputTokens: 1,
        outputTokens: 1,
        createdAt: new Date(Date.now() - i * 600_000).toISOString(),
      }));
      return route.fulfill({ json: { turns } });
    });
    await page.evaluate(() => {
      location.hash = '#turns';
    });
    const rows = page.locator('tbody tr');
    for (const count of [50, 100]) {
      await expect.poll(() => rows.count()).toBe(count);
      await page.getByRole('button', { name: 'Show more' }).click();
    }
    await expectText(page, 'These are the first 200. Others are not shown.');
    const heights = await rows.evaluateAll((all) => all.map(({ clientHeight }) => clientHeight));
    expect(Math.max(...heights) - Math.min(...heights)).toBeLessThanOrEqual(1);
    await page.screenshot({ path: `${SCREENSHOTS}/operator-turns-end.png` });
  },
);

it('/app/operator follows the language that is chosen in another tab', async () => {
  const { page, context, consoleErrors } = await browsing.visit();
  await page.goto(`${host.url}/app/operator`);
  await expectText(page, 'This page is for operators');
  const other = await openTab(context, consoleErrors);
  await other.goto(`${host.url}/app#/settings/preferences`);
  await other.getByLabel('Language of this page').selectOption('de');
  await expectText(page, 'Diese Seite ist für Betreiber');
  await expect.poll(() => page.title()).toBe('Sibyl · Betreiber');
});

it('/app/operator shows a model that is down, and PostgreSQL that is away', TIMEOUT, async () => {
  const database = await createTestDatabase('postgres');
  const proxy = await startTcpProxy(database.env.DATABASE_URL ?? '');
  const model = {
    MODEL: 'openai-compatible/down',
    MODEL_BASE_URL: `http://127.0.0.1:${await findFreePort()}/v1`,
  };
  const away = await startHost({ env: { ...database.env, ...model, DATABASE_URL: proxy.url } });
  try {
    const { page } = await browsing.visit();
    await enter(page, away.url, async (did) => {
      const client = new pg.Client({ connectionString: database.env.DATABASE_URL });
      await client.connect();
      await client.query('insert into operators (owner, created_at) values ($1, $2)', [did, 1]);
      await client.end();
    });
    const alice = new TestUser(away);
    const path = `/messages/${await openSession(alice)}`;
    expect((await alice.request('POST', path, { body: { message: 'hello' } })).status).toBe(503);
    await expectText(page, 'The model does not answer');
    await expectText(page, /refuses connections \(127\.0\.0\.1 ECONNREFUSED/);
    proxy.disconnect();
    await expect
      .poll(() => page.getByText('The database does not work').isVisible(), { timeout: 120_000 })
      .toBe(true);
    await expectText(page, /^Since /);
    // A new login needs nothing from the database either.
    await page.reload();
    await expect
      .poll(() => page.getByText('The database does not work').isVisible(), { timeout: 120_000 })
      .toBe(true);
    await page.screenshot({ path: `${SCREENSHOTS}/operator-away.png`, fullPage: true });
    proxy.reconnect();
    await expect
      .poll(() => page.getByText('The database does not work').isVisible(), { timeout: 120_000 })
      .toBe(false);
  } finally {
    proxy.reconnect();
    await away.close();
    await proxy.close();
    await database.drop();
  }
});
