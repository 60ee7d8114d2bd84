import { randomUUID } from 'node:crypto';
import { type HostMessages, OracleError, type PluginDatabase } from '@sibyl/plugin-kit';
import { LockedAccount, type UsedBy } from './account.js';
import type { CreditLines } from './subscription.js';
import type { CreditsTables, ReservationRow, Tables } from './tables.js';

/** A host that does not renew its reservations for this long has abandoned them, also if it is not known to be dead. */
const LEASE_MS = 60_000;
/** How long a settled reservation is kept for a holder that returns late. */
const MEMORY_MS = 24 * 60 * 60 * 1000;
/** Reservations renewed by one statement; abandoned ones settled in one round, the next round takes the rest. */
const ROUND = 200;

export interface ReservationKey {
  readonly owner: string;
  readonly id: string;
}

interface NewReservation extends UsedBy {
  readonly owner: string;
  readonly amount: number;
}

interface ReservationsDeps {
  readonly database: PluginDatabase<CreditsTables>;
  readonly lines: CreditLines;
  readonly initialGrant: number;
  readonly clock: () => number;
  readonly hosts: Pick<HostMessages, 'hostId' | 'findDead'>;
}

/** What running turns have set aside. Each reservation is settled once, by its holder or after the holder died. */
export class Reservations {
  private readonly holder: string;
  /** Of running turns. A reservation that the database stored without confirming it belongs to none, and expires. */
  private readonly held = new Set<string>();

  constructor(private readonly deps: ReservationsDeps) {
    this.holder = deps.hosts.hostId;
  }

  /** Sets an amount aside; throws `insufficient_credit` if there is not enough. */
  async reserve(wanted: NewReservation): Promise<ReservationKey> {
    const { owner } = wanted;
    const id = randomUUID();
    await this.tryWithLine(owner, (line) =>
      this.change(owner, async (account, tables, now) => {
        await account.welcome(this.deps.initialGrant);
        if (!account.reserve(wanted.amount, line)) return false;
        const lease = { holder: this.holder, lease_until: now + LEASE_MS };
        await insert(tables, { ...wanted, id, now, lease });
        return true;
      }),
    );
    this.held.add(id);
    return { owner, id };
  }

  /** Records the known cost of a turn and sets aside what it needs in total; throws as `reserve` does. */
  async extend(
    key: ReservationKey,
    { amount, incurred }: { readonly amount: number; readonly incurred: number },
  ): Promise<void> {
    await this.tryWithLine(key.owner, (line) =>
      this.change(key.owner, async (account, tables, now) => {
        const row = await find(tables, key);
        if (!row) throw new Error('The reservation is settled');
        const missing = Math.max(0, amount - row.amount);
        const isEnough = account.reserve(missing, line);
        await update(tables, key, {
          amount: isEnough ? row.amount + missing : row.amount,
          incurred,
          lease_until: now + LEASE_MS,
        });
        return isEnough;
      }),
    );
  }

  /** Charges the cost and sets the rest free. Settling again changes nothing. */
  async settle(
    key: ReservationKey,
    { cost, usage }: { cost: number; usage: string },
  ): Promise<void> {
    const { database, clock } = this.deps;
    await database.writeFor(key.owner, async (tables) => {
      // A user who was erased meanwhile has none.
      const account = await LockedAccount.lockExisting(tables, key.owner, clock());
      const row = account && (await find(tables, key));
      if (!row) return;
      await chargeRest(account, row, { cost, usage });
      await tables
        .deleteFrom('credits_reservations')
        .where('owner', '=', key.owner)
        .where('id', '=', key.id)
        .execute();
      await account.save();
    });
    this.held.delete(key.id);
  }

  /** Extends the lease of this holder's reservations. */
  async renew(): Promise<void> {
    const now = this.deps.clock();
    const ids = [...this.held];
    await this.deps.database.write(async (tables) => {
      for (let from = 0; from < ids.length; from += ROUND)
        await tables
          .updateTable('credits_reservations')
          .set({ lease_until: now + LEASE_MS })
          .where('holder', '=', this.holder)
          .where('id', 'in', ids.slice(from, from + ROUND))
          .execute();
    });
  }

  /** Settles abandoned reservations at their known cost; returns how many. */
  async settleAbandoned(): Promise<number> {
    const { database, clock } = this.deps;
    await this.abandonDead();
    const abandoned = await database.tables
      .selectFrom('credits_reservations')
      .select(['id', 'owner'])
      .where('lease_until', '<', clock())
      .where('amount', '>', 0)
      .orderBy('lease_until')
      .limit(ROUND)
      .execute();
    const settled = await Promise.all(abandoned.map((key) => this.settleOneAbandoned(key)));
    await this.forgetOld();
    return settled.filter(Boolean).length;
  }

  /** Ends the leases of dead hosts. */
  private async abandonDead(): Promise<void> {
    const { database, clock, hosts } = this.deps;
    const now = clock();
    const held = await database.tables
      .selectFrom('credits_reservations')
      .select('holder')
      .distinct()
      .where('lease_until', '>=', now)
      .where('amount', '>', 0)
      .where('holder', '!=', this.holder)
      .execute();
    const dead = await hosts.findDead(held.map(({ holder }) => holder));
    if (dead.length === 0) return;
    await database.write((tables) =>
      tables
        .updateTable('credits_reservations')
        .set({ lease_until: now - 1 })
        .where('holder', 'in', dead)
        .where('lease_until', '>=', now)
        .execute(),
    );
  }

  private settleOneAbandoned(key: ReservationKey): Promise<boolean> {
    const { database, clock } = this.deps;
    return database.writeFor(key.owner, async (tables) => {
      const now = clock();
      const account = await LockedAccount.lockExisting(tables, key.owner, now);
      const row = account && (await find(tables, key));
      // Its holder came back, another was first, or its owner was erased.
      if (!row || row.lease_until >= now || row.amount === 0) return false;
      const cost = Math.max(row.incurred, row.charged);
      await chargeRest(account, row, { cost, note: 'the turn was interrupted' });
      await update(tables, key, { amount: 0, charged: cost });
      await account.save();
      return true;
    });
  }

  private async forgetOld(): Promise<void> {
    const { database, clock } = this.deps;
    const before = clock() - MEMORY_MS;
    await database.write(async (tables) => {
      await tables
        .deleteFrom('credits_reservations')
        .where('lease_until', '<', before)
        .where('amount', '=', 0)
        .execute();
    });
  }

  /** Uses a line of credit only if the balance does not suffice. */
  private async tryWithLine(
    owner: string,
    attempt: (line: number) => Promise<boolean>,
  ): Promise<void> {
    if (await attempt(0)) return;
    const { lines, database } = this.deps;
    const { amount: line, error } = await lines.get(owner);
    if (line > 0 && (await attempt(line))) return;
    throw await createOutOfCreditError(database.tables, owner, error);
  }

  /** The account is always locked first, so that no two units wait for each other. */
  private change<T>(
    owner: string,
    work: (account: LockedAccount, tables: Tables, now: number) => Promise<T>,
  ): Promise<T> {
    const { database, clock } = this.deps;
    return database.writeFor(owner, async (tables) => {
      const now = clock();
      const account = await LockedAccount.lock(tables, owner, now);
      const result = await work(account, tables, now);
      await account.save();
      return result;
    });
  }
}

async function insert(
  tables: Tables,
  {
    id,
    now,
    lease,
    ...wanted
  }: NewReservation & {
    readonly id: string;
    readonly now: number;
    readonly lease: Pick<ReservationRow, 'holder' | 'lease_until'>;
  },
): Promise<void> {
  await tables
    .insertInto('credits_reservations')
    .values({
      id,
      owner: wanted.owner,
      session_id: wanted.sessionId,
      request_id: wanted.requestId,
      amount: wanted.amount,
      incurred: 0,
      charged: 0,
      ...lease,
      created_at: now,
    })
    .execute();
}

function find(tables: Tables, { owner, id }: ReservationKey): Promise<ReservationRow | undefined> {
  return tables
    .selectFrom('credits_reservations')
    .selectAll()
    .where('owner', '=', owner)
    .where('id', '=', id)
    .executeTakeFirst();
}

async function update(
  tables: Tables,
  { owner, id }: ReservationKey,
  values: Partial<ReservationRow>,
): Promise<void> {
  await tables
    .updateTable('credits_reservations')
    .set(values)
    .where('owner', '=', owner)
    .where('id', '=', id)
    .execute();
}

async function chargeRest(
  account: LockedAccount,
  row: ReservationRow,
  { cost, ...about }: { cost: number; usage?: string; note?: string },
): Promise<void> {
  const turn = { sessionId: row.session_id, requestId: row.request_id };
  account.release(row.amount);
  if (cost >= row.charged) await account.charge(cost - row.charged, { ...turn, ...about });
  else await account.refund(row.charged - cost, turn);
  await account.payUnpaid();
}

const SHOWN = 100;

/** The error for a user without credit, with the ids of their unpaid usage. */
export async function createOutOfCreditError(
  tables: Tables,
  owner: string,
  reason?: string,
): Promise<OracleError> {
  const rows = await tables
    .selectFrom('credits_unpaid')
    .select('id')
    .where('owner', '=', owner)
    .orderBy('created_at')
    .orderBy('id')
    .limit(SHOWN)
    .execute();
  const claims = rows.map(({ id }) => id);
  return new OracleError('insufficient_credit', {
    ...(reason !== undefined && { message: reason, retryAfterSeconds: 5 }),
    // Published clients read one or the other.
    fields: { claims, outstandingClaims: claims },
  });
}
