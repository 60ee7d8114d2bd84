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

  it('is of no use to others', async () => {
    const { unpaid, key, owner } = await debtor();
    expect(await unpaid.take({ ...key, owner: newOwner() })).toBeUndefined();
    await unpaid.settle({ ...key, owner: newOwner() });
    expect(await readStatement(owner)).toMatchObject({ unpaid: 300 });
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
