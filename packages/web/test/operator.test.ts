import { globSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startHost, type TestHost } from '../../host/test/support/host.js';
import { openSession, stream } from '../../host/test/support/stream.js';
import { TestUser } from '../../host/test/support/user.js';
import { expectText, SCREENSHOTS, useBrowser } from './support/browser.js';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const browsing = useBrowser();
let host: TestHost;
beforeAll(async () => {
  host = await startHost();
});
afterAll(() => host?.close());

/** As `sibyl operators add` does, from another process. */
function addOperator(did: string): void {
  const [file = ''] = globSync(join(host.dataDir, '*.db')).filter((name) => !/search/.test(name));
  const database = new DatabaseSync(file);
  database.exec(`insert into operators (owner, created_at) values ('${did}', ${Date.now()})`);
  database.close();
}

it('/app/operator shows an operator the turns, users and hosts, and a stranger only how to become one', {
  timeout: 180_000,
}, async () => {
  const alice = new TestUser(host);
  await (
    await stream(alice, await openSession(alice), { message: 'Please answer briefly' })
  ).toEnd();
  const { page } = await browsing.visit();
  await page.goto(`${host.url}/app/operator`);
  await expectText(page, 'This page is for operators');
  const command = await page.getByText('sibyl operators add').innerText();
  addOperator(command.replace('sibyl operators add ', '').trim());
  await expect
    .poll(
      async () => {
        await page.reload();
        await page.waitForTimeout(1_000);
        return page.getByRole('link', { name: 'Overview' }).isVisible();
      },
      { timeout: 60_000 },
    )
    .toBe(true);
  await expectText(page, 'Healthy');
  await page.screenshot({ path: `${SCREENSHOTS}/operator-overview.png`, fullPage: true });
  await page.evaluate(axe);
  const violations = await page.evaluate(async () => {
    const { axe: run } = window as unknown as {
      axe: { run(): Promise<{ violations: { id: string }[] }> };
    };
    return (await run.run()).violations.map(({ id }) => id);
  });
  expect(violations).toEqual([]);
  await page.getByRole('link', { name: 'Turns' }).click();
  await page.locator('.table a').first().click();
  await expectText(page, 'Arguments are hidden');
  await expectText(page, 'set_user_preferences');
  await page.screenshot({ path: `${SCREENSHOTS}/operator-turn.png`, fullPage: true });
  await page.getByRole('link', { name: 'Users' }).click();
  await page.getByRole('button', { name: 'Block' }).first().click();
  await expectText(page, 'Blocked');
  expect((await alice.request('GET', '/sessions')).body.code).toBe('caller_blocked');
  await page.screenshot({ path: `${SCREENSHOTS}/operator-users.png`, fullPage: true });
});
