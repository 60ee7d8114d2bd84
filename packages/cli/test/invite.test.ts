import { mkdirSync, mkdtempSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { TestUser } from '../../host/test/support/user.js';
import { useOracle } from '../../web/test/support/oracle.js';
import { sibyl, sibylInProcess, useFolder } from './support/sibyl.js';

const home = useFolder();
const ORACLE_MNEMONIC = 'the key of an oracle for invited users';
const DATA_DIR = join(home, 'data');
// A DID that no test uses: only invited users may call.
const CALLERS_ALLOW = 'did:web:operator.example';
const oracle = useOracle({ DATA_DIR, ORACLE_MNEMONIC, CALLERS_ALLOW });
const env = { DATA_DIR, ORACLE_MNEMONIC, CALLERS_ALLOW };

const redeem = async (user: TestUser, invitation: string) =>
  (await user.request('POST', '/invitations', { body: { invitation } })).status;
const fetchStatus = async (user: TestUser) => (await user.request('GET', '/sessions')).status;

describe('sibyl invite', () => {
  it('prints invitations that a running oracle takes once each', async () => {
    const { code, stdout } = await sibyl(['invite', '--count', '2', '--json'], { env });
    expect(code).toBe(0);
    const { invitations } = JSON.parse(stdout);
    expect(invitations).toHaveLength(2);
    const [alice, bob] = [new TestUser(oracle), new TestUser(oracle)];
    expect(await fetchStatus(alice)).toBe(403);
    expect(await redeem(alice, invitations[0].invitation)).toBe(200);
    expect(await redeem(bob, invitations[0].invitation)).toBe(409);
    expect(await redeem(bob, invitations[1].invitation)).toBe(200);
    expect([await fetchStatus(alice), await fetchStatus(bob)]).toEqual([200, 200]);
  });

  it.each([
    [{ PUBLIC_URL: 'https://oracle.example/' }, 'https://oracle.example/app#invite='],
    [{ HOST: '0.0.0.0', PORT: '4000' }, 'http://localhost:4000/app#invite='],
    [{}, 'http://127.0.0.1:3000/app#invite='],
  ])('prints a link to the page for %j', async (more, start) => {
    const { stdout } = await sibylInProcess(['invite', '--days', '2', '--json'], {
      env: { ...env, ...more },
    });
    const [{ link, invitation, expiration }] = JSON.parse(stdout).invitations;
    expect(link).toBe(start + encodeURIComponent(invitation));
    const days = (expiration - Date.now() / 1000) / 86_400;
    expect(Math.round(days)).toBe(2);
  });

  it('says so when there is no key, and makes none', async () => {
    const cwd = join(home, 'empty');
    mkdirSync(cwd);
    const { code, stderr } = await sibylInProcess(['invite'], { cwd });
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: expect.stringContaining('Start the oracle'),
    });
    expect(readdirSync(cwd)).toEqual([]);
  });

  it('says so when everyone may call anyway', async () => {
    const { stderr, stdout } = await sibylInProcess(['invite'], {
      env: { DATA_DIR, ORACLE_MNEMONIC },
    });
    expect(stderr).toContain('CALLERS_ALLOW is not set');
    expect(stdout).toMatch(/^http:.*#invite=/);
  });
});

describe.each([
  [['callers', 'list']],
  [['callers', 'remove', 'did:key:z6Mk']],
  [['credits', 'grant', 'did:key:z6Mk', '1']],
])('sibyl %j', (command) => {
  it.each([
    ['oracle key', {}],
    ['database', { ORACLE_MNEMONIC }],
  ])('says so when there is no %s, and makes none', async (missing, more) => {
    const cwd = mkdtempSync(join(home, 'wrong-'));
    const { code, stderr } = await sibylInProcess(command, { cwd, env: more });
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: expect.stringMatching(`There is no ${missing} in .* Start the oracle once`),
    });
    expect(readdirSync(cwd)).toEqual([]);
  });
});

describe('sibyl callers', () => {
  it('lists who redeemed an invitation, and removes them while the oracle runs', async () => {
    const alice = new TestUser(oracle);
    const { stdout } = await sibylInProcess(['invite', '--json'], { env });
    await redeem(alice, JSON.parse(stdout).invitations[0].invitation);
    expect(await fetchStatus(alice)).toBe(200);
    const listed = await sibyl(['callers', 'list'], { env });
    expect(listed.stdout).toContain(alice.did);
    const removed = await sibyl(['callers', 'remove', alice.did], { env });
    expect(removed).toMatchObject({ code: 0, stdout: `Removed ${alice.did}` });
    await expect.poll(() => fetchStatus(alice), { timeout: 60_000 }).toBe(403);
    const again = await sibylInProcess(['callers', 'remove', alice.did], { env });
    expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining('no invitation') });
    expect((await sibylInProcess(['callers', 'list'], { env })).stdout).not.toContain(alice.did);
  }, 120_000);
});
