import { describe, expect, it } from 'vitest';
import { usePluginTables } from '../../../packages/host/test/support/plugin-tables.js';
import { engines, newOwner } from '../../../packages/host/test/support/test-database.js';
import { costing, openLedger, turn } from '../test/support/open-ledger.js';
import { credits } from './index.js';
import { grantCredits } from './ledger.js';

describe.each(engines)('Ledger on %s', (engine) => {
  const test = usePluginTables(engine, credits);

  const open = (database = test.database, initialGrant = 0) =>
    openLedger(database, { initialGrant });

  async function userWith(amount: number) {
    const owner = newOwner();
    await grantCredits(test.database, { owner, amount });
    return owner;
  }

  const readStatement = (owner: string) => open().ledger.statement({ owner, limit: 100 });

  it('keeps grants, each reference once', async () => {
    const owner = newOwner();
    const reference = `payment ${owner}`;
    expect(await grantCredits(test.database, { owner, amount: 500, note: 'paid' })).toEqual({
      balance: 500,
      isNew: true,
    });
    const grants = await Promise.all(
      Array.from({ length: 5 }, () =>
        grantCredits(test.database, { owner, amount: 70, reference }),
      ),
    );
    expect(grants.filter(({ isNew }) => isNew)).toHaveLength(1);
    expect(await readStatement(owner)).toMatchObject({
      balance: 570,
      reserved: 0,
      unpaid: 0,
      entries: [
        { id: '2', kind: 'grant', amount: 70, balance: 570 },
        { id: '1', kind: 'grant', amount: 500, balance: 500, note: 'paid' },
      ],
    });
  });

  it.each([
    { owner: 'no-did', amount: 1 },
    { owner: 'did:key:z1', amount: 0 },
    { owner: 'did:key:z1', amount: -5 },
    { owner: 'did:key:z1', amount: 1.5 },
    { owner: 'did:key:z1', amount: 1e15 + 1 },
    { owner: 'did:key:z1', amount: 1, note: ' ' },
    { owner: 'did:key:z1', amount: 1, note: 'x'.repeat(201) },
    { owner: 'did:key:z1', amount: 1, reference: '' },
    { owner: 'did:key:z1', amount: 1, reference: 'x'.repeat(201) },
    { owner: 'did:key:z1', amount: 1, referenec: 'x' } as { owner: string; amount: number },
  ])('refuses the grant %o', async (grant) => {
    await expect(grantCredits(test.database, grant)).rejects.toMatchObject({
      code: 'validation_failed',
    });
  });

  it('grantCredits ignores spaces around a reference, so that it counts once', async () => {
    const owner = newOwner();
    const reference = `payment ${owner}`;
    await grantCredits(test.database, { owner, amount: 5, note: ' paid ', reference });
    const again = { owner, amount: 5, reference: ` ${reference}\n` };
    expect(await grantCredits(test.database, again)).toEqual({ balance: 5, isNew: false });
    expect(await readStatement(owner)).toMatchObject({ entries: [{ note: 'paid' }] });
  });

  it('grantCredits refuses what exceeds the largest exact number', async () => {
    const owner = newOwner();
    for (let i = 0; i < 9; i++) await grantCredits(test.database, { owner, amount: 1e15 });
    const rest = Number.MAX_SAFE_INTEGER - 9e15;
    const reference = `last ${owner}`;
    const last = { owner, amount: rest, reference };
    expect(await grantCredits(test.database, last)).toMatchObject({ isNew: true });
    await expect(grantCredits(test.database, { owner, amount: 1 })).rejects.toMatchObject({
      code: 'bad_request',
      message: expect.stringContaining('exceed'),
    });
    const result = { balance: Number.MAX_SAFE_INTEGER, isNew: false };
    expect(await grantCredits(test.database, last)).toEqual(result);
  });

  it('Ledger.statement shows the owner what was granted, no more than the limit', async () => {
    const before = Date.now();
    const owner = await userWith(5);
    await grantCredits(test.database, { owner, amount: 7 });
    const { ledger } = open();
    const statement = await ledger.statement({ owner, limit: 1 });
    expect(statement).toEqual({
      balance: 12,
      reserved: 0,
      unpaid: 0,
      entries: [{ id: '2', kind: 'grant', amount: 7, balance: 12, createdAt: expect.any(String) }],
    });
    expect(Date.parse(statement.entries[0]?.createdAt ?? '')).toBeGreaterThanOrEqual(before);
  });

  it('Ledger.statement of a new user is empty, and keeps the initial grant for later', async () => {
    const owner = newOwner();
    const empty = { balance: 0, reserved: 0, unpaid: 0, entries: [] };
    expect(await readStatement(owner)).toEqual(empty);
    const generous = open(test.database, 1000).ledger;
    expect(await generous.statement({ owner, limit: 10 })).toMatchObject({ balance: 1000 });
    expect(await generous.statement({ owner, limit: 10 })).toMatchObject({ entries: [{}] });
  });

  it('Ledger adds the initial grant once, no matter what opened the account', async () => {
    const { ledger, reservations } = open(test.database, 1000);
    const owner = await userWith(5);
    const statements = await Promise.all([
      ledger.statement({ owner, limit: 10 }),
      ledger.statement({ owner, limit: 10 }),
      reservations.reserve({ owner, ...turn, amount: 800 }),
    ]);
    expect(statements).toHaveLength(3);
    expect(await ledger.statement({ owner, limit: 10 })).toMatchObject({
      balance: 1005,
      reserved: 800,
      entries: [{ note: 'initial grant' }, {}],
    });
  });

  it('sets aside, charges the cost and frees the rest; settling twice charges once', async () => {
    const { reservations } = open();
    const owner = await userWith(1000);
    const key = await reservations.reserve({ owner, ...turn, amount: 600 });
    expect(await readStatement(owner)).toMatchObject({ balance: 1000, reserved: 600 });
    const usage = JSON.stringify([{ model: 'm', input: 1, cached: 0, output: 2 }]);
    await Promise.all([
      reservations.settle(key, { cost: 150, usage }),
      reservations.settle(key, { cost: 150, usage }),
    ]);
    const statement = await readStatement(owner);
    expect(statement).toMatchObject({ balance: 850, reserved: 0, unpaid: 0 });
    expect(statement.entries).toHaveLength(2);
    expect(statement.entries[0]).toMatchObject({
      kind: 'charge',
      amount: -150,
      cost: 150,
      ...turn,
      usage: JSON.parse(usage),
    });
    expect(await open().unpaid.listByOwner(owner)).toEqual([]);
  });

  it('writes nothing for a turn that cost nothing', async () => {
    const { reservations } = open();
    const owner = await userWith(1000);
    const key = await reservations.reserve({ owner, ...turn, amount: 600 });
    await reservations.settle(key, costing(0));
    expect(await readStatement(owner)).toMatchObject({ balance: 1000, reserved: 0, entries: [{}] });
  });

  it('lets in no more of 50 turns at once than the balance covers, across processes', async () => {
    const second = await test.another();
    const owner = await userWith(1000);
    const processes = [open().reservations, open(second).reservations] as const;
    const outcomes = await Promise.allSettled(
      Array.from({ length: 50 }, async (_, i) => {
        const reservations = processes[i % 2 === 0 ? 0 : 1];
        const key = await reservations.reserve({ owner, ...turn, amount: 100 });
        return { reservations, key };
      }),
    );
    const admitted = outcomes.filter((outcome) => outcome.status === 'fulfilled');
    const refused = outcomes.filter((outcome) => outcome.status === 'rejected');
    expect(admitted).toHaveLength(10);
    for (const { reason } of refused) {
      expect(reason).toMatchObject({
        code: 'insufficient_credit',
        fields: { claims: [], outstandingClaims: [] },
      });
    }
    expect(await readStatement(owner)).toMatchObject({ balance: 1000, reserved: 1000 });
    await Promise.all(
      admitted.map(({ value: { reservations, key } }) => reservations.settle(key, costing(100))),
    );
    const { balance, reserved, unpaid, entries } = await readStatement(owner);
    expect({ balance, reserved, unpaid }).toEqual({ balance: 0, reserved: 0, unpaid: 0 });
    expect(entries.reduce((sum, { amount }) => sum + amount, 0)).toBe(0);
  });

  it('extends as far as there is credit', async () => {
    const { reservations } = open();
    const owner = await userWith(1000);
    const key = await reservations.reserve({ owner, ...turn, amount: 600 });
    await reservations.extend(key, { amount: 900, incurred: 300 });
    expect(await readStatement(owner)).toMatchObject({ reserved: 900 });
    await expect(reservations.extend(key, { amount: 1001, incurred: 700 })).rejects.toMatchObject({
      code: 'insufficient_credit',
    });
    await reservations.extend(key, { amount: 1000, incurred: 800 });
    await reservations.settle(key, costing(800));
    expect(await readStatement(owner)).toMatchObject({ balance: 200, reserved: 0 });
  });

  it('never falls below nothing nor touches what other turns set aside: the rest stays unpaid', async () => {
    const { reservations } = open();
    const owner = await userWith(1000);
    const first = await reservations.reserve({ owner, ...turn, amount: 500 });
    const second = await reservations.reserve({ owner, ...turn, amount: 500 });
    await reservations.settle(first, costing(900));
    expect(await readStatement(owner)).toMatchObject({ balance: 500, reserved: 500, unpaid: 400 });
    const [{ id } = { id: '' }] = await open().unpaid.listByOwner(owner);
    await expect(reservations.reserve({ owner, ...turn, amount: 1 })).rejects.toMatchObject({
      status: 402,
      fields: { claims: [id], outstandingClaims: [id] },
    });
    await reservations.settle(second, costing(200));
    expect(await readStatement(owner)).toMatchObject({ balance: 0, reserved: 0, unpaid: 100 });
    await grantCredits(test.database, { owner, amount: 150 });
    const statement = await readStatement(owner);
    expect(statement).toMatchObject({ balance: 50, unpaid: 0 });
    expect(statement.entries.reduce((sum, { amount }) => sum + amount, 0)).toBe(50);
    expect(await open().unpaid.listByOwner(owner)).toEqual([]);
  });
});
