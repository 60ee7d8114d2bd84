import type { HostReport, OperatorAction } from '@sibyl/protocol';
import type { StoreContext } from '../database.js';
import type { Schema } from '../schema/index.js';
import type { ListedUserRow, OperatorActionRow } from '../schema/operators.js';

/** A user on one of the lists below; times in milliseconds. */
export interface ListedUser {
  readonly did: string;
  readonly note: string | undefined;
  readonly createdAt: number;
}

type ListName = {
  [Name in keyof Schema]: Schema[Name] extends ListedUserRow ? Name : never;
}[keyof Schema];

/** A list of users: operators, blocked users, or users who share the arguments of tools with operators. */
export class UserList {
  constructor(
    private readonly context: StoreContext,
    private readonly table: Extract<ListName, 'operators' | 'blocked_users' | 'shared_arguments'>,
  ) {}

  async has(did: string): Promise<boolean> {
    const { tables } = this.context.database;
    const row = await tables
      .selectFrom(this.table)
      .select('owner')
      .where('owner', '=', did)
      .executeTakeFirst();
    return row !== undefined;
  }

  /** Newest first. */
  async list(): Promise<readonly ListedUser[]> {
    const rows = await this.context.database.tables
      .selectFrom(this.table)
      .selectAll()
      .orderBy('created_at', 'desc')
      .orderBy('owner')
      .execute();
    return rows.map(({ owner, note, created_at }) => ({
      did: owner,
      note: note ?? undefined,
      createdAt: created_at,
    }));
  }

  /** Returns whether the user was not listed before. */
  add(did: string, note?: string): Promise<boolean> {
    const { database, clock } = this.context;
    return database.write(async (tables) => {
      const added = await tables
        .insertInto(this.table)
        .values({ owner: did, note: note ?? null, created_at: clock() })
        .onConflict((c) => c.column('owner').doNothing())
        .returning('owner')
        .executeTakeFirst();
      return added !== undefined;
    });
  }

  /** Returns whether the user was listed. */
  remove(did: string): Promise<boolean> {
    return this.context.database.write(async (tables) => {
      const { numDeletedRows } = await tables
        .deleteFrom(this.table)
        .where('owner', '=', did)
        .executeTakeFirstOrThrow();
      return numDeletedRows > 0n;
    });
  }
}

/** Who acts when no operator has logged in. */
export const COMMAND_LINE = 'command line';

interface NewAction {
  /** A DID, or the command line. */
  readonly operator: string;
  readonly action: OperatorAction['action'];
  /** What it was done to: a DID or the id of a run. */
  readonly target: string;
  readonly note?: string | undefined;
}

/** What operators did. Nothing in it is ever changed. */
export class AuditStore {
  constructor(private readonly context: StoreContext) {}

  async add({ operator, action, target, note }: NewAction): Promise<void> {
    const { database, newId, clock } = this.context;
    const row: OperatorActionRow = {
      owner: operator,
      id: newId(),
      action,
      target,
      note: note ?? null,
      created_at: clock(),
    };
    await database.write((tables) => tables.insertInto('operator_actions').values(row).execute());
  }

  /** Newest first; `before` is the id of an entry. */
  async list(limit: number, before?: string): Promise<readonly OperatorAction[]> {
    let query = this.context.database.tables
      .selectFrom('operator_actions')
      .selectAll()
      .orderBy('id', 'desc')
      .limit(limit);
    if (before !== undefined) query = query.where('id', '<', before);
    const rows = await query.execute();
    return rows.map(({ owner, id, action, target, note, created_at }) => ({
      id,
      at: new Date(created_at).toISOString(),
      operator: owner,
      action,
      target: target ?? '',
      ...(note !== null && { note }),
    }));
  }
}

/** How long a host that ended without a report stays in the list. */
const KEPT_MS = 24 * 60 * 60 * 1000;

/** What a host reported about itself, and when. */
export interface StoredHost {
  readonly id: string;
  readonly report: HostReport;
  /** Milliseconds. */
  readonly updatedAt: number;
}

/** The hosts of one database, as each reports itself. */
export class HostStore {
  constructor(private readonly context: StoreContext) {}

  async save(id: string, report: HostReport): Promise<void> {
    const { database, clock } = this.context;
    const now = clock();
    const row = { report: JSON.stringify(report), updated_at: now };
    await database.write(async (tables) => {
      await tables
        .insertInto('hosts')
        .values({ id, started_at: Date.parse(report.startedAt), ...row })
        .onConflict((c) => c.column('id').doUpdateSet(row))
        .execute();
      await tables
        .deleteFrom('hosts')
        .where('updated_at', '<', now - KEPT_MS)
        .execute();
    });
  }

  /** A host that ends properly is not listed any more. */
  async remove(id: string): Promise<void> {
    await this.context.database.write((tables) =>
      tables.deleteFrom('hosts').where('id', '=', id).execute(),
    );
  }

  async list(): Promise<readonly StoredHost[]> {
    const rows = await this.context.database.tables
      .selectFrom('hosts')
      .selectAll()
      .orderBy('started_at')
      .execute();
    return rows.map(({ id, report, updated_at }) => ({
      id,
      report: JSON.parse(report) as HostReport,
      updatedAt: updated_at,
    }));
  }
}
