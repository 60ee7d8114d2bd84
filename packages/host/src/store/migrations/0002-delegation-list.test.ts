import { afterEach, describe, expect, it } from 'vitest';
import { openOldDatabase } from '../../../test/support/old-database.js';
import { type Engine, engines, type TestDatabase } from '../../../test/support/test-database.js';
import { createVault } from '../encryption.js';
import { openStore } from '../store.js';
import { initial } from './0001-initial.js';

const owner = 'did:key:zAlice';
const oracle_did = 'did:key:zOracle';
let database: TestDatabase;

afterEach(() => database.drop());

/** A database as the first version left it. */
async function createFirstVersion(engine: Engine, rows: Record<string, object[]>): Promise<void> {
  database = await openOldDatabase(engine, { steps: { '0001-initial': initial }, rows });
}

describe.each(engines)('migration 0002 on %s', (engine) => {
  it('keeps delegations and revocations, with expiries in seconds', async () => {
    const expires = 1_900_000_000;
    const delegation = { owner, oracle_did, issuer: owner, audience: oracle_did, stored_at: 42 };
    const seal = (raw: string, did = oracle_did) =>
      createVault(new Uint8Array(32).fill(7)).seal(raw, ['delegation', owner, did]);
    const other = 'did:key:zOtherOracle';
    await createFirstVersion(engine, {
      delegations: [
        { ...delegation, cid: 'bafyone', ciphertext: seal('token'), expires_at: expires * 1000 },
        {
          ...delegation,
          oracle_did: other,
          audience: other,
          cid: 'bafyendless',
          ciphertext: seal('endless', other),
          expires_at: null,
        },
      ],
      revocations: [
        { owner, cid: 'bafyrevoked', expires_at: expires * 1000 },
        { owner, cid: 'bafyuneven', expires_at: expires * 1000 - 1 },
        { owner, cid: 'bafyforever', expires_at: null },
      ],
    });
    let now = 0;
    const store = await openStore({ ...database.options, clock: () => now });
    expect(await store.delegations.get({ owner, audience: oracle_did })).toEqual({
      ok: { cid: 'bafyone', expiresAt: expires, raw: 'token' },
    });
    expect(await store.delegations.list(owner)).toMatchObject([
      { cid: 'bafyendless', audience: other, expiresAt: null, isCurrent: true },
      { cid: 'bafyone', audience: oracle_did, createdAt: 42, isCurrent: true },
    ]);
    const forgotten = (expires + 3600) * 1000;
    now = forgotten - 1;
    expect(await store.revocations.prune()).toBe(0);
    now = forgotten;
    expect(await store.revocations.prune()).toBe(2);
    expect(await store.revocations.has('bafyforever')).toBe(true);
    await store.close();
  });

  it('limits an expiry that is too large for a number', async () => {
    const expires_at = '9007199254740991000';
    const row = { owner, oracle_did, issuer: owner, audience: oracle_did, stored_at: 1 };
    await createFirstVersion(engine, {
      delegations: [{ ...row, cid: 'bafyabsurd', ciphertext: 'v1.', expires_at }],
      revocations: [{ owner, cid: 'bafyrevoked', expires_at }],
    });
    const store = await openStore(database.options);
    expect(await store.delegations.list(owner)).toMatchObject([
      { cid: 'bafyabsurd', expiresAt: 253_402_300_799 },
    ]);
    expect(await store.delegations.revokeAll(owner)).toEqual(['bafyabsurd']);
    expect(await store.revocations.has('bafyrevoked')).toBe(true);
    await store.close();
  });
});
