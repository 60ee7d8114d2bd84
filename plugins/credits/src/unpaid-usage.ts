import type { PluginDatabase } from '@sibyl/plugin-kit';
import { LockedAccount } from './account.js';
import type { CreditsTables, Tables, UnpaidRow } from './tables.js';

const PAGE = 500;
const SHOWN = 100;

/** Usage that a balance could not pay. Its id stays the same until it is paid. */
export interface Unpaid {
  readonly id: string;
  readonly owner: string;
  readonly amount: number;
  readonly sessionId: string;
  readonly requestId: string;
  readonly createdAt: number;
}

export interface UnpaidKey {
  readonly owner: string;
  readonly id: string;
}

interface UnpaidUsageDeps {
  readonly database: PluginDatabase<CreditsTables>;
  readonly clock: () => number;
  /** Called when the usage of an owner was paid elsewhere. */
  readonly onPaid: (owner: string) => void;
}

/** The usage that balances could not pay, for another plugin to collect. */
export class UnpaidUsage {
  private readonly deps: UnpaidUsageDeps;

  constructor(deps: UnpaidUsageDeps) {
    this.deps = deps;
  }

  /** One page of the usage that is not being collected yet, ordered by id. */
  async list({ after = '' }: { readonly after?: string } = {}): Promise<readonly Unpaid[]> {
    const rows = await this.deps.database.tables
      .selectFrom('credits_unpaid')
      .selectAll()
      .where('id', '>', after)
      .where('taken_at', 'is', null)
      .orderBy('id')
      .limit(PAGE)
      .execute();
    return rows.map(toUnpaid);
  }

  /** The usage of one owner, oldest first. */
  async listByOwner(owner: string): Promise<readonly Unpaid[]> {
    const rows = await this.deps.database.tables
      .selectFrom('credits_unpaid')
      .selectAll()
      .where('owner', '=', owner)
      .orderBy('created_at')
      .orderBy('id')
      .limit(SHOWN)
      .execute();
    return rows.map(toUnpaid);
  }

  /** Marks it as being collected, so that the balance does not pay it; undefined if it is paid. */
  take(key: UnpaidKey): Promise<Unpaid | undefined> {
    return this.change(key, async ({ row, tables }) => {
      await setTaken(tables, key, row.taken_at ?? this.deps.clock());
      return toUnpaid(row);
    });
  }

  /** It was paid elsewhere. */
  async settle(key: UnpaidKey): Promise<void> {
    await this.change(key, ({ row, account }) => account.strikeUnpaid(row.id, row.amount));
    this.deps.onPaid(key.owner);
  }

  /** It could not be collected: the balance pays it again. */
  async release(key: UnpaidKey): Promise<void> {
    await this.change(key, async ({ account, tables }) => {
      await setTaken(tables, key, null);
      await account.payUnpaid();
    });
  }

  private change<T>(key: UnpaidKey, work: (found: Found) => Promise<T>): Promise<T | undefined> {
    const { database, clock } = this.deps;
    return database.writeFor(key.owner, async (tables) => {
      // A user who was erased meanwhile has none, but what collects the usage may be kept.
      const account = await LockedAccount.lockExisting(tables, key.owner, clock());
      if (!account) return undefined;
      const row = await tables
        .selectFrom('credits_unpaid')
        .selectAll()
        .where('owner', '=', key.owner)
        .where('id', '=', key.id)
        .executeTakeFirst();
      if (!row) return undefined;
      const result = await work({ row, account, tables });
      await account.save();
      return result;
    });
  }
}

interface Found {
  readonly row: UnpaidRow;
  readonly account: LockedAccount;
  readonly tables: Tables;
}

async function setTaken(
  tables: Tables,
  { owner, id }: UnpaidKey,
  takenAt: number | null,
): Promise<void> {
  await tables
    .updateTable('credits_unpaid')
    .set({ taken_at: takenAt })
    .where('owner', '=', owner)
    .where('id', '=', id)
    .execute();
}

function toUnpaid(row: UnpaidRow): Unpaid {
  return {
    id: row.id,
    owner: row.owner,
    amount: row.amount,
    sessionId: row.session_id,
    requestId: row.request_id,
    createdAt: row.created_at,
  };
}
