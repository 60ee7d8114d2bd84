import { describe, expect, it } from 'vitest';
import { usePluginTables } from '../../../../packages/host/test/support/plugin-tables.js';
import { engines, newOwner } from '../../../../packages/host/test/support/test-database.js';
import { costing, openLedger, turn } from '../../test/open-ledger.js';
import { credits } from '../index.js';
import { grantCredits } from './grant-credits.js';

const LEASE_MS = 60_000;

describe.each(engines)('the ledger on %s', (engine) => {
  const test = usePluginTables(engine, credits);
  let now = 1_000_000;
  const clock = () => now;

  const open = (database = test.database, initialGrant = 0) =>
    openLedger(database, { initialGrant, clock });

  async function userWith(amount: number) {
    const owner = newOwner();
    await grantCredits(test.database, { owner, amount });
    return owner;
  }

  const statementOf = (owner: string) => open().ledger.statement({ owner, limit: 100 });

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
    expect(await statementOf(owner)).toMatchObject({
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
    { owner: 'somebody', amount: 1 },
    { owner: 'did:key:z1', amount: 0 },
    { owner: 'did:key:z1', amount: -5 },
    { owner: 'did:key:z1', amount: 1.5 },
  ])('refuses the grant %o', async (grant) => {
    await expect(grantCredits(test.database, grant)).rejects.toMatchObject({
      code: 'validation_failed',
    });
  });

  it('gives every user what they start with, once, whoever opened the account', async () => {
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
    expect(await statementOf(owner)).toMatchObject({ balance: 1000, reserved: 600 });
    const usage = JSON.stringify([{ model: 'm', input: 1, cached: 0, output: 2 }]);
    await Promise.all([
      reservations.settle(key, { cost: 150, usage }),
      reservations.settle(key, { cost: 150, usage }),
    ]);
    const statement = await statementOf(owner);
    expect(statement).toMatchObject({ balance: 850, reserved: 0, unpaid: 0 });
    expect(statement.entries).toHaveLength(2);
    expect(statement.entries[0]).toMatchObject({
      kind: 'charge',
      amount: -150,
      cost: 150,
      ...turn,
      usage: JSON.parse(usage),
    });
  });

  it('writes nothing for a turn that cost nothing', async () => {
    const { reservations } = open();
    const owner = await userWith(1000);
    const key = await reservations.reserve({ owner, ...turn, amount: 600 });
    await reservations.settle(key, costing(0));
    expect(await statementOf(owner)).toMatchObject({ balance: 1000, reserved: 0, entries: [{}] });
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
    expect(await statementOf(owner)).toMatchObject({ balance: 1000, reserved: 1000 });
    await Promise.all(
      admitted.map(({ value: { reservations, key } }) => reservations.settle(key, costing(100))),
    );
    const { balance, reserved, unpaid, entries } = await statementOf(owner);
    expect({ balance, reserved, unpaid }).toEqual({ balance: 0, reserved: 0, unpaid: 0 });
    expect(entries.reduce((sum, { amount }) => sum + amount, 0)).toBe(0);
  });

  it('extends as far as there is credit', async () => {
    const { reservations } = open();
    const owner = await userWith(1000);
    const key = await reservations.reserve({ owner, ...turn, amount: 600 });
    await reservations.extend(key, { amount: 900, incurred: 300 });
    expect(await statementOf(owner)).toMatchObject({ reserved: 900 });
    await expect(reservations.extend(key, { amount: 1001, incurred: 700 })).rejects.toMatchObject({
      code: 'insufficient_credit',
    });
    await reservations.extend(key, { amount: 1000, incurred: 800 });
    await reservations.settle(key, costing(800));
    expect(await statementOf(owner)).toMatchObject({ balance: 200, reserved: 0 });
  });

  it('never falls below nothing nor touches what other turns set aside: the rest stays unpaid', async () => {
    const { reservations } = open();
    const owner = await userWith(1000);
    const first = await reservations.reserve({ owner, ...turn, amount: 500 });
    const second = await reservations.reserve({ owner, ...turn, amount: 500 });
    await reservations.settle(first, costing(900));
    expect(await statementOf(owner)).toMatchObject({ balance: 500, reserved: 500, unpaid: 400 });
    const refusal = reservations.reserve({ owner, ...turn, amount: 1 });
    const [{ id } = { id: '' }] = await open().unpaid.of(owner);
    await expect(refusal).rejects.toMatchObject({
      status: 402,
      fields: { claims: [id], outstandingClaims: [id] },
    });
    await reservations.settle(second, costing(200));
    expect(await statementOf(owner)).toMatchObject({ balance: 0, reserved: 0, unpaid: 100 });
    await grantCredits(test.database, { owner, amount: 150 });
    const statement = await statementOf(owner);
    expect(statement).toMatchObject({ balance: 50, unpaid: 0 });
    expect(statement.entries.reduce((sum, { amount }) => sum + amount, 0)).toBe(50);
    expect(await open().unpaid.of(owner)).toEqual([]);
  });

  describe('turns whose process is gone', () => {
    it('are charged for what they are known to have cost, once their lease is over', async () => {
      const dead = open().reservations;
      const alive = open(await test.another()).reservations;
      const owner = await userWith(1000);
      const key = await dead.reserve({ owner, ...turn, amount: 600 });
      await dead.extend(key, { amount: 700, incurred: 250 });
      await alive.settleAbandoned();
      expect(await statementOf(owner)).toMatchObject({ balance: 1000, reserved: 700 });
      now += LEASE_MS + 1;
      await Promise.all([alive.settleAbandoned(), alive.settleAbandoned()]);
      expect(await statementOf(owner)).toMatchObject({
        balance: 750,
        reserved: 0,
        entries: [{ kind: 'charge', amount: -250, note: 'the turn was cut off' }, {}],
      });
    });

    it('are left alone while their process says that it lives', async () => {
      const { reservations } = open();
      const owner = await userWith(1000);
      const key = await reservations.reserve({ owner, ...turn, amount: 600 });
      now += LEASE_MS - 1;
      await reservations.renew();
      now += LEASE_MS - 1;
      await open().reservations.settleAbandoned();
      expect(await statementOf(owner)).toMatchObject({ reserved: 600 });
      await reservations.settle(key, costing(1));
    });

    /** A process that has found what is abandoned, and waits before it settles it. */
    async function openPausing() {
      const database = await test.another();
      const found = Promise.withResolvers<void>();
      const goOn = Promise.withResolvers<void>();
      const paused: typeof database = {
        ...database,
        write: async (unit) => {
          found.resolve();
          await goOn.promise;
          return database.write(unit);
        },
      };
      return { ...open(paused), found: found.promise, goOn: goOn.resolve };
    }

    it.each(['renew', 'extend'] as const)(
      'settleAbandoned leaves alone a turn whose process comes back by %s just before it is settled',
      async (sign) => {
        const holder = open().reservations;
        const owner = await userWith(1000);
        const key = await holder.reserve({ owner, ...turn, amount: 600 });
        await holder.extend(key, { amount: 600, incurred: 250 });
        now += LEASE_MS + 1;
        const { reservations, found, goOn } = await openPausing();
        const settling = reservations.settleAbandoned();
        await found;
        if (sign === 'renew') await holder.renew();
        else await holder.extend(key, { amount: 700, incurred: 300 });
        goOn();
        await settling;
        const reserved = sign === 'renew' ? 600 : 700;
        expect(await statementOf(owner)).toMatchObject({ balance: 1000, reserved, entries: [{}] });
        await expect(
          open().reservations.reserve({ owner, ...turn, amount: 1001 - reserved }),
        ).rejects.toMatchObject({ code: 'insufficient_credit' });
        await holder.settle(key, costing(400));
        expect(await statementOf(owner)).toMatchObject({ balance: 600, reserved: 0 });
      },
    );

    it('settleAbandoned of several processes settles each turn once', async () => {
      await open().reservations.settleAbandoned();
      const owner = await userWith(1000);
      const dead = open().reservations;
      const key = await dead.reserve({ owner, ...turn, amount: 600 });
      await dead.extend(key, { amount: 600, incurred: 250 });
      now += LEASE_MS + 1;
      const processes = await Promise.all([openPausing(), openPausing(), openPausing()]);
      const settling = processes.map(({ reservations }) => reservations.settleAbandoned());
      await Promise.all(processes.map(({ found }) => found));
      for (const { goOn } of processes) goOn();
      expect((await Promise.all(settling)).reduce((sum, one) => sum + one)).toBe(1);
      const statement = await statementOf(owner);
      expect(statement).toMatchObject({ balance: 750, reserved: 0 });
      expect(statement.entries).toHaveLength(2);
    });

    it.each([
      { cost: 400, balance: 600, kind: 'charge' },
      { cost: 100, balance: 900, kind: 'refund' },
    ])('and comes back late are charged $cost in the end', async ({ cost, balance, kind }) => {
      const late = open().reservations;
      const owner = await userWith(1000);
      const key = await late.reserve({ owner, ...turn, amount: 600 });
      await late.extend(key, { amount: 600, incurred: 250 });
      now += LEASE_MS + 1;
      await open().reservations.settleAbandoned();
      await late.settle(key, costing(cost));
      await late.settle(key, costing(cost));
      const statement = await statementOf(owner);
      expect(statement).toMatchObject({ balance, reserved: 0, entries: [{ kind }, {}, {}] });
    });
  });
});
