import { describe, expect, it } from 'vitest';
import { usePluginTables } from '../../../packages/host/test/support/plugin-tables.js';
import { engines, newOwner } from '../../../packages/host/test/support/test-database.js';
import { costing, openLedger, turn } from '../test/support/open-ledger.js';
import { credits } from './index.js';
import { grantCredits } from './ledger.js';
import type { CreditLines } from './subscription.js';

describe.each(engines)('UnpaidUsage: what is left unpaid on %s', (engine) => {
  const test = usePluginTables(engine, credits);

  async function userWith(amount: number) {
    const owner = newOwner();
    await grantCredits(test.database, { owner, amount });
    return owner;
  }

  const readStatement = (owner: string) =>
    openLedger(test.database).ledger.statement({ owner, limit: 100 });

  async function debtor(amount = 300) {
    const { reservations, unpaid } = openLedger(test.database);
    const owner = await userWith(100);
    const key = await reservations.reserve({ owner, ...turn, amount: 100 });
    await reservations.settle(key, costing(100 + amount));
    const [debt] = await unpaid.listByOwner(owner);
    if (!debt) throw new Error('nothing is unpaid');
    return { owner, unpaid, key: { owner, id: debt.id } };
  }

  it('UnpaidUsage.list returns pages of usage that is not taken', async () => {
    const { unpaid, key } = await debtor();
    const listed = await unpaid.list();
    expect(listed.find(({ id }) => id === key.id)).toMatchObject({ amount: 300, ...turn });
    expect(await unpaid.list({ after: listed.at(-1)?.id ?? '' })).toEqual([]);
    expect(await unpaid.take(key)).toMatchObject({ amount: 300 });
    expect((await unpaid.list()).some(({ id }) => id === key.id)).toBe(false);
  });

  it('UnpaidUsage.take keeps a grant from paying it', async () => {
    const { owner, unpaid, key } = await debtor();
    await unpaid.take(key);
    await grantCredits(test.database, { owner, amount: 1000 });
    expect(await readStatement(owner)).toMatchObject({ balance: 1000, unpaid: 300 });
    await Promise.all([unpaid.settle(key), unpaid.settle(key)]);
    expect(await readStatement(owner)).toMatchObject({ balance: 1000, unpaid: 0 });
    expect(await unpaid.take(key)).toBeUndefined();
  });

  it('is paid by the balance again when it cannot be collected', async () => {
    const { owner, unpaid, key } = await debtor();
    await unpaid.take(key);
    await grantCredits(test.database, { owner, amount: 200 });
    await unpaid.release(key);
    expect(await readStatement(owner)).toMatchObject({ balance: 0, unpaid: 100 });
    expect(await unpaid.listByOwner(owner)).toMatchObject([{ id: key.id, amount: 100 }]);
  });

  it('of a user who was erased is collected without an account', async () => {
    const { owner, unpaid, key } = await debtor();
    await unpaid.take(key);
    await test.database.write(async (tables) => {
      for (const table of ['credits_unpaid', 'credits_entries', 'credits_accounts'] as const)
        await tables.deleteFrom(table).where('owner', '=', owner).execute();
    });
    expect(await unpaid.take(key)).toBeUndefined();
    await unpaid.settle(key);
    await unpaid.release(key);
    const accounts = test.database.tables.selectFrom('credits_accounts').selectAll();
    expect(await accounts.where('owner', '=', owner).execute()).toEqual([]);
  });

  it('is taken, paid and released one by one', async () => {
    const { reservations, unpaid } = openLedger(test.database);
    const owner = await userWith(1);
    const spend = async (cost: number, requestId: string) => {
      const key = await reservations.reserve({ owner, ...turn, requestId, amount: 0 });
      await reservations.settle(key, costing(cost));
    };
    await spend(1 + 100, 'first');
    await spend(200, 'second');
    const [first, second] = await unpaid.listByOwner(owner);
    if (!first || !second) throw new Error('two are unpaid');
    await unpaid.take(second);
    await grantCredits(test.database, { owner, amount: 30 });
    expect(await readStatement(owner)).toMatchObject({ balance: 0, unpaid: 270 });
    await unpaid.settle(second);
    expect(await unpaid.listByOwner(owner)).toEqual([{ ...first, amount: 70 }]);
    expect(await readStatement(owner)).toMatchObject({ unpaid: 70 });
  });

  it('is paid by a grant oldest first, and each payment is an entry', async () => {
    let tick = 0;
    const { reservations, unpaid } = openLedger(test.database, { clock: () => 1_000_000 + tick++ });
    const owner = await userWith(1);
    for (const requestId of ['first', 'second', 'third']) {
      const key = await reservations.reserve({ owner, ...turn, requestId, amount: 0 });
      await reservations.settle(key, costing(requestId === 'first' ? 101 : 100));
    }
    await grantCredits(test.database, { owner, amount: 200 });
    const [third, ...more] = await unpaid.listByOwner(owner);
    expect(third).toMatchObject({ requestId: 'third', amount: 100 });
    expect(more).toEqual([]);
    const { entries } = await readStatement(owner);
    const note = 'usage left unpaid before';
    expect(entries.slice(0, 3)).toMatchObject([
      { kind: 'charge', amount: -100, requestId: 'second', sessionId: turn.sessionId, note },
      { kind: 'charge', amount: -100, requestId: 'first', sessionId: turn.sessionId, note },
      { kind: 'grant', amount: 200 },
    ]);
  });

  it('UnpaidUsage.list returns 500 in a page', async () => {
    const owner = newOwner();
    const usage = { owner, amount: 1, session_id: 's', request_id: 'r', taken_at: null };
    const ids = Array.from({ length: 501 }, (_, i) => `~${owner}-${String(i).padStart(3, '0')}`);
    await test.database.write(async (tables) => {
      const rows = ids.map((id) => ({ id, created_at: 1, ...usage }));
      await tables.insertInto('credits_unpaid').values(rows).execute();
    });
    const { unpaid } = openLedger(test.database);
    const page = await unpaid.list({ after: '~' });
    expect(page.map(({ id }) => id)).toEqual(ids.slice(0, 500));
    expect(await unpaid.list({ after: page.at(-1)?.id ?? '' })).toMatchObject([{ id: ids[500] }]);
  });

  it('is of no use to others', async () => {
    const { unpaid, key, owner } = await debtor();
    expect(await unpaid.take({ ...key, owner: newOwner() })).toBeUndefined();
    await unpaid.settle({ ...key, owner: newOwner() });
    await unpaid.take(key);
    await unpaid.release({ ...key, owner: newOwner() });
    expect((await unpaid.list()).some(({ id }) => id === key.id)).toBe(false);
    expect(await readStatement(owner)).toMatchObject({ unpaid: 300 });
  });

  // SQLite allows an id only once.
  if (engine === 'postgres')
    it('of two owners is apart even if it has the same id', async () => {
      const [first, second] = [await debtor(), await debtor()];
      await test.database.write(async (tables) => {
        await tables
          .updateTable('credits_unpaid')
          .set({ id: first.key.id })
          .where('id', '=', second.key.id)
          .execute();
      });
      const { unpaid } = first;
      await unpaid.take(first.key);
      const listed = async () => (await unpaid.list()).filter(({ id }) => id === first.key.id);
      expect((await listed()).map(({ owner }) => owner)).toEqual([second.owner]);
      await unpaid.take({ ...first.key, owner: second.owner });
      await unpaid.release(first.key);
      expect((await listed()).map(({ owner }) => owner)).toEqual([first.owner]);
      await grantCredits(test.database, { owner: first.owner, amount: 50 });
      expect(await unpaid.listByOwner(first.owner)).toMatchObject([{ amount: 250 }]);
      expect(await unpaid.listByOwner(second.owner)).toMatchObject([{ amount: 300 }]);
      await grantCredits(test.database, { owner: first.owner, amount: 250 });
      expect(await unpaid.listByOwner(first.owner)).toEqual([]);
      expect(await unpaid.listByOwner(second.owner)).toMatchObject([{ amount: 300 }]);
    });

  it('is not paid by credit that running turns have set aside', async () => {
    const lines: CreditLines = { get: async () => ({ amount: 1000 }), forget: () => {} };
    const { reservations } = openLedger(test.database, { lines });
    const { owner } = await debtor();
    await reservations.reserve({ owner, ...turn, amount: 600 });
    const entries = (await readStatement(owner)).entries.length;
    await grantCredits(test.database, { owner, amount: 500 });
    const statement = await readStatement(owner);
    expect(statement).toMatchObject({ balance: 500, reserved: 600, unpaid: 300 });
    expect(statement.entries).toHaveLength(entries + 1);
  });

  it('spends a line of credit after the balance, less what is unpaid of it', async () => {
    const forgotten: string[] = [];
    const lines: CreditLines = {
      get: async () => ({ amount: 1000 }),
      forget: (owner) => void forgotten.push(owner),
    };
    const { reservations, unpaid } = openLedger(test.database, { lines });
    const owner = await userWith(100);
    const first = await reservations.reserve({ owner, ...turn, amount: 700 });
    await expect(reservations.reserve({ owner, ...turn, amount: 401 })).rejects.toThrow(/credit/);
    const second = await reservations.reserve({ owner, ...turn, amount: 400 });
    await reservations.settle(first, costing(700));
    await reservations.settle(second, costing(300));
    expect(await readStatement(owner)).toMatchObject({ balance: 0, reserved: 0, unpaid: 900 });
    await expect(reservations.reserve({ owner, ...turn, amount: 101 })).rejects.toThrow(/credit/);
    for (const { id } of await unpaid.listByOwner(owner)) await unpaid.settle({ owner, id });
    expect(forgotten).toContain(owner);
    await reservations.reserve({ owner, ...turn, amount: 1000 });
  });
});
