import type { PluginDatabase } from '@sibyl/plugin-kit';
import { bigint, defineTable, type Row, type TableTypes, text } from '@sibyl/plugin-kit/tables';
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

export const claims = defineTable(
  'claims_claims',
  {
    owner: text(),
    id: text(),
    amount: bigint(),
    session_id: text(),
    request_id: text(),
    status: text<ClaimStatus>(),
    /** How often it was sent, including attempts with unknown outcome. */
    attempts: bigint(),
    next_attempt_at: bigint(),
    reference: text().optional(),
    reason: text().optional(),
    created_at: bigint(),
    updated_at: bigint(),
  },
  {
    key: ['owner', 'id'],
    indexes: {
      claims_by_owner: { on: ['owner', 'created_at', 'id'] },
      claims_by_due: { on: ['status', 'next_attempt_at'] },
    },
    onErase: { keeps: 'rows', reason: 'Claims for payment, which the operator must keep' },
  },
);

export type ClaimRow = Row<typeof claims>;

const leases = defineTable(
  'claims_leases',
  {
    /** Empty: the runner works for all users. */
    owner: text(),
    name: text(),
    holder: text(),
    lease_until: bigint(),
  },
  { key: ['owner', 'name'] },
);

/** The plugin's tables; timestamps are milliseconds. */
export const tables = [claims, leases] as const;

export type ClaimsTables = TableTypes<typeof tables>;

const FIRST_MS = 30_000;
const LONGEST_MS = 6 * 60 * 60 * 1000;

/** Doubles with each attempt, up to six hours. */
export function computeBackoff(attempts: number): number {
  return Math.min(FIRST_MS * 2 ** Math.max(0, attempts - 1), LONGEST_MS);
}
