import type { PluginDatabase } from '@sibyl/plugin-kit';
import type { Claim, ClaimStatus } from '../claim.js';
import type { Unpaid } from '../unpaid-usage.js';
import { backoff } from './backoff.js';
import type { ClaimRow, ClaimsTables } from './tables.js';

const BATCH = 50;

/** What is known of a claim after it was tried. */
export interface ClaimNews {
  readonly status: ClaimStatus;
  readonly reference?: string | undefined;
  readonly reason?: string | undefined;
}

interface ClaimStoreParts {
  readonly database: PluginDatabase<ClaimsTables>;
  readonly clock: () => number;
}

/** Keeps the claims and when each is to be tried next. */
export class ClaimStore {
  readonly #parts: ClaimStoreParts;

  constructor(parts: ClaimStoreParts) {
    this.#parts = parts;
  }

  /** Makes claims of usage that is not claimed yet; of an open one the amount may have changed. */
  async adopt(usage: readonly Unpaid[]): Promise<void> {
    if (usage.length === 0) return;
    const now = this.#parts.clock();
    await this.#parts.database.write(async (tables) => {
      await tables
        .insertInto('claims_claims')
        .values(usage.map((unpaid) => newClaim(unpaid, now)))
        .onConflict((c) =>
          c
            .column('id')
            .doUpdateSet((e) => ({ amount: e.ref('excluded.amount') }))
            .where('claims_claims.status', '=', 'open'),
        )
        .execute();
    });
  }

  /** Newest first. */
  async list({ owner, limit }: { owner: string; limit: number }): Promise<Claim[]> {
    const rows = await this.#parts.database.tables
      .selectFrom('claims_claims')
      .selectAll()
      .where('owner', '=', owner)
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(limit)
      .execute();
    return rows.map(claimOf);
  }

  /** Some of those whose time has come. */
  due(): Promise<readonly ClaimRow[]> {
    return this.#parts.database.tables
      .selectFrom('claims_claims')
      .selectAll()
      .where('status', 'in', ['open', 'submitted'])
      .where('next_attempt_at', '<=', this.#parts.clock())
      .orderBy('next_attempt_at')
      .limit(BATCH)
      .execute();
  }

  /** Notes an attempt before it is made, so that after a crash nobody takes it for the first. */
  begin({ id, attempts }: ClaimRow, amount: number): Promise<void> {
    const now = this.#parts.clock();
    return this.#update(id, {
      amount,
      attempts: attempts + 1,
      next_attempt_at: now + backoff(attempts + 1),
    });
  }

  /** Notes how an attempt ended; one that is not over is tried again later. */
  async record(id: string, { status, reference, reason }: ClaimNews): Promise<void> {
    await this.#update(id, {
      status,
      reason: reason ?? null,
      ...(reference !== undefined && { reference }),
    });
  }

  async #update(id: string, values: Partial<ClaimRow>): Promise<void> {
    const { database, clock } = this.#parts;
    await database.write(async (tables) => {
      await tables
        .updateTable('claims_claims')
        .set({ ...values, updated_at: clock() })
        .where('id', '=', id)
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

function claimOf(row: ClaimRow): Claim {
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
