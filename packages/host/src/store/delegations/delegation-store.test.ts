import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';
import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';

const oracleDid = 'did:key:zOracle';
const raw = 'OqJlcm9vdHOB2CpYJQABcRIg-a-token-nobody-else-may-read';

function delegationOf(owner: string, cid = 'bafyfirst') {
  const expiresAt = Date.now() + 60_000;
  return { owner, oracleDid, cid, raw, issuer: owner, audience: oracleDid, expiresAt };
}

describe.each(engines)('delegations on %s', (engine) => {
  const test = useStore(engine);

  it('gives back what was put and replaces it with the next', async () => {
    const { delegations } = test.store;
    const owner = newOwner();
    await delegations.put(delegationOf(owner));
    const record = await delegations.put({ ...delegationOf(owner, 'bafysecond'), raw: 'second' });
    expect(await delegations.get({ owner, oracleDid })).toEqual({
      ok: { ...record, raw: 'second' },
    });
    expect(record.cid).toBe('bafysecond');
  });

  it('keeps a delegation that never expires', async () => {
    const owner = newOwner();
    await test.store.delegations.put({ ...delegationOf(owner), expiresAt: null });
    expect(await test.store.delegations.get({ owner, oracleDid })).toMatchObject({
      ok: { expiresAt: null },
    });
  });

  it('treats a foreign delegation as unknown', async () => {
    const { delegations } = test.store;
    const owner = newOwner();
    await delegations.put(delegationOf(owner));
    const foreign = { owner: newOwner(), oracleDid };
    expect(await delegations.get(foreign)).toEqual({ error: 'not-found' });
    expect(await delegations.revoke(foreign)).toBeUndefined();
    expect(await delegations.get({ owner, oracleDid })).toHaveProperty('ok');
  });

  it('is gone and refused once revoked', async () => {
    const { delegations, revocations } = test.store;
    const owner = newOwner();
    expect(await revocations.has('bafyrevoked')).toBe(false);
    await delegations.put(delegationOf(owner, 'bafyrevoked'));
    expect(await delegations.revoke({ owner, oracleDid })).toMatchObject({ cid: 'bafyrevoked' });
    expect(await revocations.has('bafyrevoked')).toBe(true);
    expect(await delegations.get({ owner, oracleDid })).toEqual({ error: 'not-found' });
  });

  it('is unreadable, not fatal, under another key', async () => {
    const owner = newOwner();
    await test.store.delegations.put(delegationOf(owner));
    const stranger = await test.another({ secretKey: new Uint8Array(32).fill(8) });
    const result = await stranger.delegations.get({ owner, oracleDid });
    expect(result).toMatchObject({ error: 'unreadable', reason: expect.stringContaining('key') });
  });

  it('does not open a row moved to another user', async () => {
    const victim = newOwner();
    const thief = newOwner();
    await test.store.delegations.put(delegationOf(victim));
    await test.store.delegations.put(delegationOf(thief));
    await execute(
      `update delegations set ciphertext = (select ciphertext from delegations where owner = '${victim}') where owner = '${thief}'`,
    );
    expect(await test.store.delegations.get({ owner: thief, oracleDid })).toMatchObject({
      error: 'unreadable',
    });
  });

  it('never writes the token itself', async () => {
    await test.store.delegations.put(delegationOf(newOwner()));
    const stored = await (engine === 'sqlite' ? rawFiles() : rawRows());
    expect(stored).toContain('bafyfirst');
    expect(stored).not.toContain(raw.slice(0, 16));
    expect(stored).not.toContain(Buffer.from(raw).toString('base64').slice(0, 16));
  });

  function rawFiles(): string {
    const { dataDir } = test.options;
    return readdirSync(dataDir)
      .map((file) => readFileSync(join(dataDir, file), 'latin1'))
      .join();
  }

  async function rawRows(): Promise<string> {
    return JSON.stringify(await execute('select * from delegations'));
  }

  async function execute(statement: string): Promise<unknown[]> {
    const { databaseUrl, dataDir } = test.options;
    if (databaseUrl === undefined) {
      const handle = new DatabaseSync(join(dataDir, 'sibyl.db'));
      handle.exec(statement);
      handle.close();
      return [];
    }
    const client = new pg.Client({ connectionString: databaseUrl });
    await client.connect();
    const { rows } = await client.query(statement);
    await client.end();
    return rows;
  }
});
