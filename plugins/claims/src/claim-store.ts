import type { PluginDatabase, PluginMigrations } from '@sibyl/plugin-kit';
import { type Kysely, sql } from 'kysely';
import type { Claim, ClaimStatus, Unpaid } from './claim.js';

const BATCH = 50;
const UNDECIDED: readonly ClaimStatus[] = ['open', 'submitted'];

type ClaimKey = Pick<ClaimRow, 'owner' | 'id'>;

/** The outcome of an attempt. */
export interface ClaimUpdate {
  readonly status: ClaimStatus;
  readonly reference?: string | undefined;
  readonly reason?: string | undefined;
}

interface ClaimStoreDeps {
  readonly database: PluginDatabase<ClaimsTables>;
  readonly clock: () => number;
}

/** Stores the claims and when to try each of them next. */
export class ClaimStore {
  private readonly deps: ClaimStoreDeps;

  constructor(deps: ClaimStoreDeps) {
    this.deps = deps;
  }

  /** Creates claims for usage that has none; updates the amounts of open ones. */
  async adopt(usage: readonly Unpaid[]): Promise<void> {
    if (usage.length === 0) return;
    const now = this.deps.clock();
    await this.deps.database.write(async (tables) => {
      await tables
        .insertInto('claims_claims')
        .values(usage.map((unpaid) => newClaim(unpaid, now)))
        .onConflict((c) =>
          c
            .columns(['owner', 'id'])
            .doUpdateSet((e) => ({ amount: e.ref('excluded.amount') }))
            .where('claims_claims.status', '=', 'open'),
        )
        .execute();
    });
  }

  /** Newest first. */
  async list({ owner, limit }: { owner: string; limit: number }): Promise<Claim[]> {
    const rows = await this.deps.database.tables
      .selectFrom('claims_claims')
      .selectAll()
      .where('owner', '=', owner)
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(limit)
      .execute();
    return rows.map(toClaim);
  }

  /** A batch of the claims that are due. */
  due(): Promise<readonly ClaimRow[]> {
    return this.deps.database.tables
      .selectFrom('claims_claims')
      .selectAll()
      .where('status', 'in', UNDECIDED)
      .where('next_attempt_at', '<=', this.deps.clock())
      .orderBy('next_attempt_at')
      .limit(BATCH)
      .execute();
  }

  /** Records an attempt before it is made, so that a crash does not hide it. */
  begin({ attempts, ...claim }: ClaimRow, amount: number): Promise<void> {
    const now = this.deps.clock();
    return this.update(claim, {
      amount,
      attempts: attempts + 1,
      next_attempt_at: now + computeBackoff(attempts + 1),
    });
  }

  /** Records the outcome of an attempt. */
  async record(key: ClaimKey, { status, reference, reason }: ClaimUpdate): Promise<void> {
    await this.update(key, {
      status,
      reason: reason ?? null,
      ...(reference !== undefined && { reference }),
    });
  }

  private async update({ owner, id }: ClaimKey, values: Partial<ClaimRow>): Promise<void> {
    const { database, clock } = this.deps;
    await database.write(async (tables) => {
      await tables
        .updateTable('claims_claims')
        .set({ ...values, updated_at: clock() })
        .where('owner', '=', owner)
        .where('id', '=', id)
        // Another runner may have ended it while this one was frozen.
        .where('status', 'in', UNDECIDED)
        .execute();
    });
  }
}

function newClaim({ sessionId, requestId, createdAt, ...unpaid }: Unpaid, now: number): ClaimRow {
  return {
    id: unpaid.id,
    owner: unpaid.owner,
    amount: unpaid.amount,
    session_id: sessionId,
    request_id: requestId,
    status: 'open',
    attempts: 0,
    next_attempt_at: now,
    reference: null,
    reason: null,
    created_at: createdAt,
    updated_at: now,
  };
}

function toClaim(row: ClaimRow): Claim {
  return {
    id: row.id,
    amount: row.amount,
    status: row.status,
    sessionId: row.session_id,
    requestId: row.request_id,
    ...(row.reference !== null && { reference: row.reference }),
    ...(row.reason !== null && { reason: row.reason }),
    createdAt: new Date(row.created_at).toISOString(),
    updatedAt: new Date(row.updated_at).toISOString(),
  };
}

/** The plugin's tables; timestamps are milliseconds. */
export interface ClaimsTables {
  claims_claims: ClaimRow;
  claims_leases: LeaseRow;
}

export interface ClaimRow {
  id: string;
  owner: string;
  amount: number;
  session_id: string;
  request_id: string;
  status: ClaimStatus;
  /** How often it was sent, including attempts with unknown outcome. */
  attempts: number;
  next_attempt_at: number;
  reference: string | null;
  reason: string | null;
  created_at: number;
  updated_at: number;
}

interface LeaseRow {
  /** Empty: the runner works for all users. */
  owner: string;
  name: string;
  holder: string;
  lease_until: number;
}

// biome-ignore lint/suspicious/noExplicitAny: a migration sees the tables of its time.
type AnyTables = Kysely<any>;

export const migrations = {
  async '0001-claims'(tables) {
    await createClaims(tables);
    await createLeases(tables);
  },
  async '0002-lease-owner'(tables) {
    await rebuildLeases(tables);
  },
  async '0003-owner-first'(tables, engine) {
    await tables.schema
      .createIndex('claims_one_per_owner')
      .unique()
      .on('claims_claims')
      .columns(['owner', 'id'])
      .execute();
    if (engine === 'postgres')
      await sql`alter table claims_claims
        drop constraint claims_claims_pkey, add primary key using index claims_one_per_owner`.execute(
        tables,
      );
  },
} satisfies PluginMigrations;

async function createClaims(tables: AnyTables): Promise<void> {
  await tables.schema
    .createTable('claims_claims')
    .addColumn('id', 'text', (c) => c.primaryKey().notNull())
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('amount', 'bigint', (c) => c.notNull())
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('request_id', 'text', (c) => c.notNull())
    .addColumn('status', 'text', (c) => c.notNull())
    .addColumn('attempts', 'bigint', (c) => c.notNull())
    .addColumn('next_attempt_at', 'bigint', (c) => c.notNull())
    .addColumn('reference', 'text')
    .addColumn('reason', 'text')
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addColumn('updated_at', 'bigint', (c) => c.notNull())
    .execute();
  await tables.schema
    .createIndex('claims_by_owner')
    .on('claims_claims')
    .columns(['owner', 'created_at', 'id'])
    .execute();
  await tables.schema
    .createIndex('claims_by_due')
    .on('claims_claims')
    .columns(['status', 'next_attempt_at'])
    .execute();
}

async function createLeases(tables: AnyTables): Promise<void> {
  await tables.schema
    .createTable('claims_leases')
    .addColumn('name', 'text', (c) => c.primaryKey().notNull())
    .addColumn('holder', 'text', (c) => c.notNull())
    .addColumn('lease_until', 'bigint', (c) => c.notNull())
    .execute();
}

async function rebuildLeases(tables: AnyTables): Promise<void> {
  await tables.schema
    .createTable('claims_leases_rebuilt')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('name', 'text', (c) => c.notNull())
    .addColumn('holder', 'text', (c) => c.notNull())
    .addColumn('lease_until', 'bigint', (c) => c.notNull())
    .addPrimaryKeyConstraint('claims_leases_by_owner', ['owner', 'name'])
    .execute();
  await sql`insert into claims_leases_rebuilt
    select '', name, holder, lease_until from claims_leases`.execute(tables);
  await tables.schema.dropTable('claims_leases').execute();
  await tables.schema.alterTable('claims_leases_rebuilt').renameTo('claims_leases').execute();
}

const FIRST_MS = 30_000;
const LONGEST_MS = 6 * 60 * 60 * 1000;

/** Doubles with each attempt, up to six hours. */
export function computeBackoff(attempts: number): number {
  return Math.min(FIRST_MS * 2 ** Math.max(0, attempts - 1), LONGEST_MS);
}
