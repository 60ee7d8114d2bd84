import type { Kysely } from 'kysely';
import type { IdempotencyRow, Schema } from '../database/schema.js';

export interface KeyClaim {
  readonly owner: string;
  readonly key: string;
  /** Of the request, so that the same key with another body is noticed. */
  readonly bodyHash: string;
  readonly expiresAt: number;
  readonly runId?: string | undefined;
}

/** What became of the first request with a key, as far as it has come. */
export interface FirstOutcome {
  readonly runId?: string;
  readonly status?: number;
  readonly response?: unknown;
}

export type ClaimResult =
  | { readonly state: 'new' }
  | { readonly state: 'existing'; readonly first: FirstOutcome }
  | { readonly state: 'conflict' };

/** Claims an idempotency key inside a unit: of many at once, exactly one finds it new. */
export async function claimKey(
  tables: Kysely<Schema>,
  claim: KeyClaim,
  now: number,
): Promise<ClaimResult> {
  const { owner, key, ...values } = toRow(claim, now);
  const claimed = await tables
    .insertInto('idempotency_keys')
    .values({ owner, key, ...values })
    .onConflict((c) =>
      c
        .columns(['owner', 'key'])
        .doUpdateSet(values)
        .where('idempotency_keys.expires_at', '<=', now),
    )
    .returning('key')
    .executeTakeFirst();
  if (claimed !== undefined) return { state: 'new' };
  const first = await tables
    .selectFrom('idempotency_keys')
    .selectAll()
    .where('owner', '=', owner)
    .where('key', '=', key)
    .executeTakeFirst();
  // Released in between: the next attempt finds it free.
  if (first === undefined) return claimKey(tables, claim, now);
  if (first.body_hash !== claim.bodyHash) return { state: 'conflict' };
  return { state: 'existing', first: toOutcome(first) };
}

/** Forgets a key inside a unit, so that the request may be tried anew. */
export async function releaseKey(
  tables: Kysely<Schema>,
  { owner, key }: Pick<KeyClaim, 'owner' | 'key'>,
): Promise<void> {
  await tables
    .deleteFrom('idempotency_keys')
    .where('owner', '=', owner)
    .where('key', '=', key)
    .execute();
}

function toRow(claim: KeyClaim, now: number): IdempotencyRow {
  return {
    owner: claim.owner,
    key: claim.key,
    body_hash: claim.bodyHash,
    run_id: claim.runId ?? null,
    status: null,
    response: null,
    created_at: now,
    expires_at: claim.expiresAt,
  };
}

function toOutcome(row: IdempotencyRow): FirstOutcome {
  return {
    ...(row.run_id !== null && { runId: row.run_id }),
    ...(row.status !== null && { status: row.status }),
    ...(row.response !== null && { response: JSON.parse(row.response) }),
  };
}
