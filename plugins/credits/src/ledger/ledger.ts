import type { PluginDatabase } from '@sibyl/plugin-kit';
import type { CreditEntry, CreditStatement } from '../statement.js';
import { LockedAccount } from './locked-account.js';
import type { AccountRow, CreditsTables, EntryRow, Tables } from './tables.js';

interface LedgerParts {
  readonly database: PluginDatabase<CreditsTables>;
  readonly initialGrant: number;
  readonly clock: () => number;
}

/** The accounts as their owners see them. */
export class Ledger {
  readonly #parts: LedgerParts;

  constructor(parts: LedgerParts) {
    this.#parts = parts;
  }

  /** What an owner has, and the last entries that made it so. */
  async statement(of: {
    readonly owner: string;
    readonly limit: number;
  }): Promise<CreditStatement> {
    await this.#welcome(of.owner);
    return this.#parts.database.read(async (tables) => {
      const account = await findAccount(tables, of.owner);
      const entries = await tables
        .selectFrom('credits_entries')
        .selectAll()
        .where('owner', '=', of.owner)
        .orderBy('seq', 'desc')
        .limit(of.limit)
        .execute();
      const { balance = 0, reserved = 0, unpaid = 0 } = account ?? {};
      return { balance, reserved, unpaid, entries: entries.map(entryOf) };
    });
  }

  /** A user who only looks gets what every user starts with, too. */
  async #welcome(owner: string): Promise<void> {
    const { database, initialGrant, clock } = this.#parts;
    if (initialGrant === 0 || (await findAccount(database.tables, owner))?.is_welcomed) return;
    await database.write(async (tables) => {
      const account = await LockedAccount.lock(tables, owner, clock());
      await account.welcome(initialGrant);
      await account.save();
    });
  }
}

function findAccount(tables: Tables, owner: string): Promise<AccountRow | undefined> {
  return tables
    .selectFrom('credits_accounts')
    .selectAll()
    .where('owner', '=', owner)
    .executeTakeFirst();
}

function entryOf(row: EntryRow): CreditEntry {
  return {
    id: String(row.seq),
    kind: row.kind,
    amount: row.amount,
    balance: row.balance,
    ...(row.cost !== null && { cost: row.cost }),
    ...(row.usage !== null && { usage: JSON.parse(row.usage) }),
    ...(row.session_id !== null && { sessionId: row.session_id }),
    ...(row.request_id !== null && { requestId: row.request_id }),
    ...(row.note !== null && { note: row.note }),
    createdAt: new Date(row.created_at).toISOString(),
  };
}
