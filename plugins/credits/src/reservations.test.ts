import { describe, expect, it } from 'vitest';
import { usePluginTables } from '../../../packages/host/test/support/plugin-tables.js';
import { engines, newOwner } from '../../../packages/host/test/support/test-database.js';
import { costing, openLedger, turn } from '../test/support/open-ledger.js';
import { credits } from './index.js';
import { grantCredits } from './ledger.js';

const LEASE_MS = 60_000;
const HOUR_MS = 60 * 60 * 1000;

describe.each(engines)('Reservations on %s', (engine) => {
  const test = usePluginTables(engine, credits);

  async function userWith(amount: number) {
    const owner = newOwner();
    await grantCredits(test.database, { owner, amount });
    return owner;
  }

  const readStatement = (owner: string) =>
    openLedger(test.database).ledger.statement({ owner, limit: 100 });

  it('keep the turns of one owner apart', async () => {
    const { reservations } = openLedger(test.database);
    const owner = await userWith(1000);
    const first = await reservations.reserve({ owner, ...turn, amount: 300 });
    const second = await reservations.reserve({ owner, ...turn, amount: 200 });
    await reservations.extend(first, { amount: 500, incurred: 0 });
    await reservations.settle(second, costing(0));
    expect(await readStatement(owner)).toMatchObject({ balance: 1000, reserved: 500 });
    await reservations.settle(first, costing(400));
    expect(await readStatement(owner)).toMatchObject({ balance: 600, reserved: 0 });
  });

  it('cannot be extended or settled by another owner, nor extended once settled', async () => {
    const { reservations } = openLedger(test.database);
    const owner = await userWith(1000);
    const other = await userWith(1000);
    const key = await reservations.reserve({ owner, ...turn, amount: 300 });
    const stolen = { ...key, owner: other };
    await expect(reservations.extend(stolen, { amount: 400, incurred: 1 })).rejects.toThrow(
      'settled',
    );
    await reservations.settle(stolen, costing(200));
    expect(await readStatement(owner)).toMatchObject({ balance: 1000, reserved: 300 });
    expect(await readStatement(other)).toMatchObject({ balance: 1000, reserved: 0, entries: [{}] });
    await reservations.settle(key, costing(200));
    await expect(reservations.extend(key, { amount: 400, incurred: 1 })).rejects.toThrow('settled');
    expect(await readStatement(owner)).toMatchObject({ balance: 800, reserved: 0 });
  });

  async function eraseAccount(owner: string) {
    await test.database.write(async (tables) => {
      for (const table of ['credits_reservations', 'credits_entries', 'credits_accounts'] as const)
        await tables.deleteFrom(table).where('owner', '=', owner).execute();
    });
  }

  const findAccounts = (owner: string) =>
    test.database.tables
      .selectFrom('credits_accounts')
      .selectAll()
      .where('owner', '=', owner)
      .execute();

  it('of a user who was erased are settled without an account', async () => {
    const { reservations } = openLedger(test.database);
    const owner = await userWith(1000);
    const key = await reservations.reserve({ owner, ...turn, amount: 300 });
    await eraseAccount(owner);
    await reservations.settle(key, costing(200));
    expect(await findAccounts(owner)).toEqual([]);
  });

  it('of a user who is erased while abandoned ones are settled leave no account', async () => {
    const owner = await userWith(1000);
    const { reservations } = openLedger(test.database);
    await reservations.reserve({ owner, ...turn, amount: 300 });
    const { database } = test;
    // Found before, settled after the erasure.
    let erased: Promise<void> | undefined;
    const slow: typeof database = {
      ...database,
      tables: database.tables,
      writeFor: async (owner, unit) => {
        erased ??= eraseAccount(owner);
        await erased;
        return database.writeFor(owner, unit);
      },
    };
    const clock = () => Date.now() + 2 * LEASE_MS;
    await openLedger(slow, { clock }).reservations.settleAbandoned();
    expect(await findAccounts(owner)).toEqual([]);
  });

  // SQLite allows an id only once.
  if (engine === 'postgres')
    it('of two owners are apart even if they have the same id', async () => {
      const { reservations } = openLedger(test.database);
      const [owner, other] = [await userWith(1000), await userWith(1000)];
      const key = await reservations.reserve({ owner, ...turn, amount: 300 });
      const theirs = await reservations.reserve({ owner: other, ...turn, amount: 300 });
      await test.database.write(async (tables) => {
        const values = { id: key.id };
        await tables
          .updateTable('credits_reservations')
          .set(values)
          .where('id', '=', theirs.id)
          .execute();
      });
      await reservations.extend(key, { amount: 500, incurred: 400 });
      await reservations.settle(key, costing(400));
      await reservations.settle({ owner: other, id: key.id }, costing(100));
      expect(await readStatement(owner)).toMatchObject({ balance: 600, reserved: 0 });
      expect(await readStatement(other)).toMatchObject({ balance: 900, reserved: 0 });
    });

  it('reserve says why a line of credit is not known', async () => {
    const error = 'The service is down. Try again.';
    const lines = { get: async () => ({ amount: 0, error }), forget: () => {} };
    const owner = await userWith(10);
    const unknown = openLedger(test.database, { lines }).reservations;
    await expect(unknown.reserve({ owner, ...turn, amount: 11 })).rejects.toMatchObject({
      code: 'insufficient_credit',
      message: error,
      retryAfterSeconds: 5,
    });
    const none = openLedger(test.database).reservations;
    await expect(none.reserve({ owner, ...turn, amount: 11 })).rejects.toMatchObject({
      message: expect.stringMatching(/credit/i),
      retryAfterSeconds: undefined,
    });
  });

  it('reserve names the unpaid usage of its owner alone, 100 at most', async () => {
    const { reservations } = openLedger(test.database);
    const [debtor, other] = [await userWith(1), await userWith(1)];
    const usage = { session_id: 's', request_id: 'r', taken_at: null };
    await test.database.write(async (tables) => {
      const ids = Array.from({ length: 101 }, (_, i) => `${debtor}-${String(i).padStart(3, '0')}`);
      const rows = ids.map((id, i) => ({ id, owner: debtor, amount: 1, created_at: i, ...usage }));
      await tables.insertInto('credits_unpaid').values(rows).execute();
    });
    await expect(reservations.reserve({ owner: debtor, ...turn, amount: 9 })).rejects.toMatchObject(
      {
        fields: { claims: expect.objectContaining({ length: 100, 0: `${debtor}-000` }) },
      },
    );
    await expect(reservations.reserve({ owner: other, ...turn, amount: 9 })).rejects.toMatchObject({
      fields: { claims: [], outstandingClaims: [] },
    });
    const { unpaid } = openLedger(test.database);
    expect(await unpaid.listByOwner(debtor)).toHaveLength(100);
  });
});

describe.each(engines)('Reservations: turns whose process is gone on %s', (engine) => {
  const test = usePluginTables(engine, credits);
  let now = 1_000_000;
  const clock = () => now;

  const open = (database = test.database) => openLedger(database, { clock });

  async function userWith(amount: number) {
    const owner = newOwner();
    await grantCredits(test.database, { owner, amount });
    return owner;
  }

  const readStatement = (owner: string) => open().ledger.statement({ owner, limit: 100 });

  it('are charged for what they are known to have cost, once their lease is over', async () => {
    const dead = open().reservations;
    const alive = open(await test.another()).reservations;
    const owner = await userWith(1000);
    const key = await dead.reserve({ owner, ...turn, amount: 600 });
    await dead.extend(key, { amount: 700, incurred: 250 });
    await alive.settleAbandoned();
    expect(await readStatement(owner)).toMatchObject({ balance: 1000, reserved: 700 });
    now += LEASE_MS + 1;
    await Promise.all([alive.settleAbandoned(), alive.settleAbandoned()]);
    expect(await readStatement(owner)).toMatchObject({
      balance: 750,
      reserved: 0,
      entries: [{ kind: 'charge', amount: -250, note: 'the turn was interrupted' }, {}],
    });
  });

  it('are charged at once if their host is known to be dead, and once more if it returns', async () => {
    const dead = open().reservations;
    const owner = await userWith(1000);
    const key = await dead.reserve({ owner, ...turn, amount: 600 });
    await dead.extend(key, { amount: 600, incurred: 250 });
    const findDead = async (hostIds: readonly string[]) => hostIds;
    const alive = openLedger(await test.another(), { clock, findDead }).reservations;
    expect(await alive.settleAbandoned()).toBe(1);
    expect(await readStatement(owner)).toMatchObject({ balance: 750, reserved: 0 });
    await dead.settle(key, costing(400));
    expect(await readStatement(owner)).toMatchObject({ balance: 600, reserved: 0 });
  });

  it('are left alone until their first lease is over', async () => {
    const owner = await userWith(1000);
    await open().reservations.reserve({ owner, ...turn, amount: 600 });
    now += LEASE_MS;
    expect(await open().reservations.settleAbandoned()).toBe(0);
    expect(await readStatement(owner)).toMatchObject({ reserved: 600 });
    now += 1;
    expect(await open().reservations.settleAbandoned()).toBe(1);
  });

  it('are left alone while their process says that it lives', async () => {
    const { reservations } = open();
    const owner = await userWith(1000);
    const key = await reservations.reserve({ owner, ...turn, amount: 600 });
    now += LEASE_MS - 1;
    await reservations.renew();
    now += LEASE_MS - 1;
    await open().reservations.settleAbandoned();
    expect(await readStatement(owner)).toMatchObject({ reserved: 600 });
    await reservations.settle(key, costing(1));
  });

  it('renew keeps only the reservations that its process made', async () => {
    const [dead, alive] = [open().reservations, open().reservations];
    const owner = await userWith(1000);
    await dead.reserve({ owner, ...turn, amount: 600 });
    now += LEASE_MS + 1;
    await alive.renew();
    expect(await alive.settleAbandoned()).toBe(1);
    expect(await readStatement(owner)).toMatchObject({ reserved: 0 });
  });

  it('renew leaves out a reservation that was stored although the reply of the database was lost', async () => {
    const { database } = test;
    const owner = await userWith(1000);
    let isReplyLost = false;
    const { reservations } = open({
      ...database,
      writeFor: async (owner, unit) => {
        const result = await database.writeFor(owner, unit);
        if (isReplyLost) throw new Error('Connection terminated unexpectedly');
        return result;
      },
    });
    const key = await reservations.reserve({ owner, ...turn, amount: 100 });
    isReplyLost = true;
    await expect(reservations.reserve({ owner, ...turn, amount: 600 })).rejects.toThrow();
    isReplyLost = false;
    expect(await readStatement(owner)).toMatchObject({ reserved: 700 });
    now += LEASE_MS + 1;
    await reservations.renew();
    await open().reservations.settleAbandoned();
    expect(await readStatement(owner)).toMatchObject({ balance: 1000, reserved: 100 });
    await reservations.settle(key, costing(0));
  });

  it('settleAbandoned takes 200 in a round and loses none, even after days', async () => {
    const dead = open().reservations;
    const owner = await userWith(1000);
    const reserve = () => dead.reserve({ owner, ...turn, amount: 1 });
    await Promise.all(Array.from({ length: 201 }, reserve));
    now += 25 * HOUR_MS;
    const { reservations } = open();
    expect(await reservations.settleAbandoned()).toBe(200);
    expect(await readStatement(owner)).toMatchObject({ reserved: 1 });
    expect(await reservations.settleAbandoned()).toBe(1);
    expect(await readStatement(owner)).toMatchObject({ balance: 1000, reserved: 0 });
  });

  it('settleAbandoned passes over what it settled within the last day', async () => {
    const dead = open().reservations;
    const owner = await userWith(1000);
    const reserve = () => dead.reserve({ owner, ...turn, amount: 1 });
    await Promise.all(Array.from({ length: 200 }, reserve));
    now += LEASE_MS + 1;
    expect(await open().reservations.settleAbandoned()).toBe(200);
    await reserve();
    now += LEASE_MS + 1;
    expect(await open().reservations.settleAbandoned()).toBe(1);
  });

  it.each([
    { hours: 23, balance: 600 },
    { hours: 25, balance: 750 },
  ])('are adjusted by their process after $hours hours: $balance', async ({ hours, balance }) => {
    const late = open().reservations;
    const owner = await userWith(1000);
    const key = await late.reserve({ owner, ...turn, amount: 600 });
    await late.extend(key, { amount: 600, incurred: 250 });
    now += LEASE_MS + 1;
    await open().reservations.settleAbandoned();
    now += hours * HOUR_MS;
    await open().reservations.settleAbandoned();
    await late.settle(key, costing(400));
    expect(await readStatement(owner)).toMatchObject({ balance, reserved: 0 });
  });

  /** A process that has found what is abandoned, and waits before it settles it. */
  async function openPausing() {
    const database = await test.another();
    const found = Promise.withResolvers<void>();
    const goOn = Promise.withResolvers<void>();
    const paused: typeof database = {
      ...database,
      writeFor: async (owner, unit) => {
        found.resolve();
        await goOn.promise;
        return database.writeFor(owner, unit);
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
      expect(await readStatement(owner)).toMatchObject({ balance: 1000, reserved, entries: [{}] });
      await expect(
        open().reservations.reserve({ owner, ...turn, amount: 1001 - reserved }),
      ).rejects.toMatchObject({ code: 'insufficient_credit' });
      await holder.settle(key, costing(400));
      expect(await readStatement(owner)).toMatchObject({ balance: 600, reserved: 0 });
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
    const statement = await readStatement(owner);
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
    const statement = await readStatement(owner);
    expect(statement).toMatchObject({ balance, reserved: 0, entries: [{ kind, ...turn }, {}, {}] });
  });
});
