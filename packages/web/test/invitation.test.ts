import { expect, it } from 'vitest';
import { createInvitations, loadConfig } from '../../host/src/index.js';
import { expectText, useBrowser } from './support/browser.js';
import { useOracle } from './support/oracle.js';

const ORACLE_MNEMONIC = 'the key of an oracle whose page takes invitations';
const oracle = useOracle({ ORACLE_MNEMONIC, CALLERS_ALLOW: 'did:web:operator.example' });
const browser = useBrowser();

async function invite(): Promise<string> {
  const config = loadConfig({ ORACLE_MNEMONIC, PUBLIC_URL: oracle.url });
  const [printed] = await createInvitations({ days: 1, count: 1 }, config);
  return printed?.link ?? '';
}

const REFUSAL = 'This oracle is open to invited users only. Ask its operator for an invitation.';

it('the page asks a user without access for an invitation', async () => {
  const { page } = await browser.visit();
  await page.goto(`${oracle.url}/app`);
  await expectText(page, REFUSAL);
  await expectText(page, /did:key:z6Mk/);
  // Opened in the same tab.
  await page.goto(await invite());
  await page.getByLabel('Your message').waitFor();
  expect(page.url()).not.toContain('invite');
});

it('a link with #invite= gives permanent access and disappears from the address bar', async () => {
  const link = await invite();
  const { page } = await browser.visit();
  await page.goto(link);
  await page.getByLabel('Your message').waitFor();
  expect(page.url()).not.toContain('invite');
  await page.goto(`${oracle.url}/app`);
  await page.getByLabel('Your message').waitFor();

  const { page: late } = await browser.visit();
  await late.goto(link);
  await expectText(late, 'This invitation has been used.');
  expect(late.url()).not.toContain('invite');
});

it('a link with a damaged #invite= shows an error', async () => {
  const { page } = await browser.visit();
  await page.goto(`${oracle.url}/app#invite=damaged`);
  await expectText(page, 'This is not a valid invitation to this oracle');
});
