import { exportPrivateKey } from '@sibyl/ucan';
import type { Page } from 'playwright-core';
import { beforeAll, describe, expect, it } from 'vitest';
import { select } from '../../../scripts/test-scale.ts';
import { createSchedule } from '../../host/test/support/schedules.js';
import { upload } from '../../host/test/support/upload.js';
import { TestUser } from '../../host/test/support/user.js';
import { SCREENSHOTS, type VisitOptions } from './support/browser.js';
import { findOverflow, findViolations, SCREENS, useSettings } from './support/use-settings.js';

const { oracle, arrive, open } = useSettings();
let user: TestUser;

/** Data on every screen. */
async function fill(): Promise<void> {
  const { body: session } = await user.request('POST', '/sessions');
  const path = `/messages/${session.sessionId}`;
  const answered = user.request('POST', path, { body: { message: 'Rain in Kitui?' } });
  (await oracle.model.next()).answer('42 mm in March.');
  await answered;
  void user.request('POST', path, { body: { message: 'Write to Bob' } }).catch(() => undefined);
  const turn = await oracle.model.next();
  turn.call({ name: 'send_letter', input: { to: 'Bob Mwangi, Kitui', copies: 2 } });
  await user.request('POST', '/delegation', {
    body: { raw: user.delegate({ capabilities: [{ can: 'letter/send', with: user.did }] }) },
  });
  await user.request('POST', '/memory', { body: { text: 'Works in Kitui' } });
  await user.request('PATCH', '/user-preferences', { body: { userName: 'Sam' } });
  await createSchedule(user, { name: 'Weather summary for Kitui' });
  await createSchedule(user, { name: 'When a sensor reports', trigger: { type: 'webhook' } });
  // Long after the permission of the schedule.
  const at = new Date(Date.now() + 10 * 86_400_000).toISOString();
  await createSchedule(user, { name: 'Harvest report', trigger: { type: 'once', at } });
  await upload(user, 'site-report-2026.txt', 'Rain in Kitui');
}

/** A browser that uses the key of the user. */
async function visit(options: VisitOptions, { signer } = user): Promise<Page> {
  const { page } = await arrive('key', options);
  await page.locator('.page .rows').first().waitFor();
  await page.getByRole('button', { name: 'Add', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('radio', { name: /24 words/ }).check();
  await dialog.getByRole('textbox').first().fill(exportPrivateKey(signer));
  await dialog.getByRole('button', { name: 'Add to this browser' }).click();
  await page.getByRole('button', { name: 'Switch to it now' }).click();
  await page.locator('.conv').first().waitFor({ state: 'attached' });
  return page;
}

beforeAll(async () => {
  user = new TestUser(oracle);
  await fill();
}, 120_000);

describe('settings screens with data', () => {
  const windows = [
    ['phone', { width: 390, height: 844, colorScheme: 'dark' as const }],
    ['tablet', { width: 768, height: 1024 }],
    ['desktop-dark', { width: 1440, height: 900, colorScheme: 'dark' as const }],
    ['wide', { width: 2560, height: 1440 }],
  ] as const;

  it.each(select(windows, 'tablet', 'desktop-dark'))(
    'have no violation of axe, fit the window, and every control is reached by Tab: %s',
    async (name, options) => {
      const page = await visit(options);
      for (const screen of SCREENS) {
        await open(page, screen);
        await expect.poll(() => page.locator('main [aria-busy="true"]').count()).toBe(0);
        await page.screenshot({
          path: `${SCREENSHOTS}/filled-${screen}-${name}.png`,
          fullPage: true,
        });
        expect(await findViolations(page), screen).toEqual([]);
        expect(await findOverflow(page), screen).toEqual([]);
        if (name === 'tablet') expect(await findUnreached(page), screen).toEqual([]);
      }
    },
  );

  it('show long words without a space completely on a narrow screen', async () => {
    const word = 'pneumonoultramicroscopicsilicovolcanoconiosis'.repeat(2);
    const verbose = new TestUser(oracle);
    await verbose.request('POST', '/sessions', { body: { title: word } });
    await verbose.request('POST', '/memory', { body: { text: word } });
    await createSchedule(verbose, { name: word });
    const raw = verbose.delegate({ capabilities: [{ can: `x/${word}`, with: verbose.did }] });
    await verbose.request('POST', '/delegation', { body: { raw } });
    const page = await visit({ width: 320, height: 640 }, verbose);
    for (const screen of ['permissions', 'memory', 'schedules']) {
      await open(page, screen);
      await page.locator('.page').getByText(word).first().waitFor();
      expect(await findOverflow(page), screen).toEqual([]);
    }
  });

  it('read from right to left in Arabic', async () => {
    const page = await visit({ width: 1024, height: 900 });
    await open(page, 'preferences');
    await page.getByLabel('Language of this page').selectOption('ar');
    for (const screen of SCREENS) {
      await open(page, screen);
      await expect.poll(() => page.locator('main [aria-busy="true"]').count()).toBe(0);
      await page.screenshot({ path: `${SCREENSHOTS}/filled-${screen}-rtl.png`, fullPage: true });
      expect(await findOverflow(page), screen).toEqual([]);
      // Also texts in other languages begin at the right.
      const sides = await page
        .locator('.page :is([dir="auto"]:not(input, textarea), bdi)')
        .evaluateAll((texts) => texts.map((each) => getComputedStyle(each).textAlign));
      expect(
        sides.filter((side) => side !== 'right'),
        screen,
      ).toEqual([]);
    }
    // Time runs to the right, in the chart as in its labels.
    await open(page, 'usage');
    const chart = page.locator('.chart svg');
    await chart.waitFor();
    await expect.poll(() => chart.evaluate((svg) => getComputedStyle(svg).direction)).toBe('ltr');
  });

  it('say that the permission of a schedule ends before it runs again, and renew it', async () => {
    const page = await visit({ width: 1440, height: 900 });
    await open(page, 'schedules');
    const row = page.locator('.rows > li', { hasText: 'Harvest report' });
    await expect.poll(() => row.innerText()).toContain('its permission ends before that');
    await row.getByRole('button', { name: 'Renew for 30 days' }).click();
    await expect.poll(() => row.innerText()).toContain('permission until');
  });

  it('name the schedules that stop with a permission, and with all of them', async () => {
    const planner = new TestUser(oracle);
    await createSchedule(planner, { name: 'Rain in Kitui' });
    await createSchedule(planner, { name: 'Seeds in stock' });
    const page = await visit({ width: 1440, height: 900 }, planner);
    await open(page, 'permissions');
    const granted = page.locator('section', { hasText: 'Allowed now' });
    const status = granted.getByRole('status');
    await granted.getByRole('button', { name: 'Revoke: Run “Rain in Kitui” as you' }).click();
    await expect.poll(() => status.innerText()).toBe('stopped: Rain in Kitui');
    await granted.getByRole('button', { name: 'Revoke all' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke all' }).click();
    await expect.poll(() => status.innerText()).toBe('stopped: Seeds in stock');
    await open(page, 'schedules');
    await expect.poll(() => page.locator('.rows > li', { hasText: 'stopped' }).count()).toBe(2);
  });
});

describe('settings screens offline', () => {
  it('say that nothing was lost and what to do, and work again once online', async () => {
    const { page, context } = await arrive('files', { width: 1440, height: 900 });
    const screens = SCREENS.filter((screen) => !['key', 'preferences', 'data'].includes(screen));
    for (const screen of screens) await open(page, screen);
    await context.setOffline(true);
    for (const screen of screens) {
      await open(page, screen);
      const alert = page.locator('main [role="alert"]').first();
      await alert.waitFor();
      await expect
        .poll(() => alert.innerText(), { message: screen })
        .toContain('Can’t reach the server');
      await expect
        .poll(() => page.locator('.banner[role="status"]').innerText(), { message: screen })
        .toContain('You’re offline.');
      expect(await findViolations(page), screen).toEqual([]);
      await page.screenshot({ path: `${SCREENSHOTS}/offline-${screen}.png` });
    }
    await context.setOffline(false);
    await page.locator('main').getByRole('button', { name: 'Try again' }).first().click();
    await expect.poll(() => page.locator('main [role="alert"]').count()).toBe(0);
  });
});

/** Controls of the screen that Tab does not reach. */
async function findUnreached(page: Page): Promise<string[]> {
  const count = await page.evaluate(() => {
    (document.activeElement as HTMLElement | null)?.blur();
    return document.querySelectorAll('a, button, input, select, textarea, summary').length;
  });
  for (let i = 0; i < count + 5; i += 1) {
    await page.keyboard.press('Tab');
    await page.evaluate(() => document.activeElement?.setAttribute('data-reached', ''));
  }
  return page.evaluate(() => {
    const controls = [
      ...document.querySelectorAll<HTMLInputElement>(
        'main :is(a[href], button, input, select, textarea, summary):not(:disabled)',
      ),
    ].filter((each) => each.checkVisibility() && !each.hasAttribute('data-reached'));
    // Arrow keys move inside of a group of radio buttons.
    const missed = controls.filter(
      ({ type, name }) =>
        type !== 'radio' ||
        !document.querySelector(`input[type=radio][name="${name}"][data-reached]`),
    );
    return missed.map(({ outerHTML }) => outerHTML.slice(0, 100));
  });
}
