import { setImmediate as nextTick } from 'node:timers/promises';
import type { Kysely } from 'kysely';
import { prepareQuery, type StoreContext } from './database.js';
import type { Schema } from './schema/index.js';
import { type RunKey, type RunRow, runs } from './schema/runs.js';

export interface IdempotencyKey {
  readonly owner: string;
  readonly key: string;
}

/** The first request with a key, and the latest attempt of the turn it started. */
interface FirstRequest {
  readonly bodyHash: string;
  readonly runId: string;
  /** Whether a repeated request starts the next attempt. */
  readonly isUnanswered: boolean;
}

/** The runs that requests with an `Idempotency-Key` started, per user; starting a run claims the key. */
export class IdempotencyStore {
  private readonly context: StoreContext;

  constructor(context: StoreContext) {
    this.context = context;
  }

  async find({ owner, key }: IdempotencyKey): Promise<FirstRequest | undefined> {
    const { database, clock } = this.context;
    const row = await findClaim(database.tables, { owner, key }, clock());
    if (!row) return undefined;
    const latest = await findLatestAttempt(database.tables, { owner, runId: row.run_id });
    return {
      bodyHash: row.body_hash,
      runId: latest?.id ?? row.run_id,
      isUnanswered: latest !== undefined && isUnanswered(latest),
    };
  }

  /** Deletes expired keys in portions, so that other writers do not wait long; returns how many. */
  async prune(): Promise<number> {
    const { clock, database } = this.context;
    const now = clock();
    for (let total = 0; ; ) {
      const deleted = await database.write((tables) => deleteExpired(tables, now));
      total += deleted;
      if (deleted < KEYS_PER_PORTION) return total;
      await nextTick();
    }
  }
}

/** The latest attempt of the turn that a run belongs to. */
export async function findLatestAttempt(
  tables: Kysely<Schema>,
  key: RunKey,
): Promise<RunRow | undefined> {
  const { rows } = await selectLatestAttempt(tables, key);
  return rows[0];
}

const selectLatestAttempt = prepareQuery((tables, { owner, runId }: RunKey) =>
  tables
    .selectFrom('runs as first')
    .innerJoin('runs as latest', (join) =>
      join
        .onRef('latest.owner', '=', 'first.owner')
        .onRef('latest.session_id', '=', 'first.session_id')
        .onRef('latest.turn', '=', 'first.turn'),
    )
    .selectAll('latest')
    .where('first.owner', '=', owner)
    .where('first.id', '=', runId)
    .orderBy('latest.attempt', 'desc')
    .limit(1),
);

/** Whether a request for the turn of a run, its latest attempt, starts the next one. */
export const isUnanswered = (latest: RunRow): boolean =>
  runs.toValues(latest).report?.isUnanswered === true;

const KEYS_PER_PORTION = 1000;

async function deleteExpired(tables: Kysely<Schema>, now: number): Promise<number> {
  const { numDeletedRows } = await tables
    .deleteFrom('idempotency_keys')
    .where(({ eb, refTuple, selectFrom }) =>
      eb(
        refTuple('owner', 'key'),
        'in',
        selectFrom('idempotency_keys as expired')
          .select(['expired.owner', 'expired.key'])
          .where('expired.expires_at', '<=', now)
          .orderBy('expired.expires_at')
          .limit(KEYS_PER_PORTION)
          .$asTuple('owner', 'key'),
      ),
    )
    // On PostgreSQL, it may have been claimed again meanwhile.
    .where('expires_at', '<=', now)
    .executeTakeFirstOrThrow();
  return Number(numDeletedRows);
}

/** How long an idempotency key is known. */
export const KEY_LIFE_MS = 24 * 60 * 60 * 1000;

export interface KeyClaim {
  readonly owner: string;
  readonly key: string;
  /** Of the request, to detect the same key with another body. */
  readonly bodyHash: string;
  readonly expiresAt: number;
  /** The run this request would start, or the session it would create. */
  readonly runId: string;
}

/** The claim of a key that has not expired. */
export const findClaim = (tables: Kysely<Schema>, { owner, key }: IdempotencyKey, now: number) =>
  tables
    .selectFrom('idempotency_keys')
    .select(['body_hash', 'run_id'])
    .where('owner', '=', owner)
    .where('key', '=', key)
    .where('expires_at', '>', now)
    .executeTakeFirst();

type ClaimResult =
  | { readonly state: 'new' }
  | { readonly state: 'existing'; readonly runId: string }
  | { readonly state: 'conflict' };

/** Claims an idempotency key whose earlier claim, if there is one, counts no more. */
export async function replaceClaim(
  tables: Kysely<Schema>,
  claim: KeyClaim,
  now: number,
): Promise<void> {
  const { owner, key } = claim;
  const values = toValues(claim, now);
  await tables
    .insertInto('idempotency_keys')
    .values({ owner, key, ...values })
    .onConflict((c) => c.columns(['owner', 'key']).doUpdateSet(values))
    .execute();
}

/** Claims an idempotency key inside a unit of work: of concurrent claims, exactly one gets `new`. */
export async function claimKey(
  tables: Kysely<Schema>,
  claim: KeyClaim,
  now: number,
): Promise<ClaimResult> {
  const { owner, key } = claim;
  const values = toValues(claim, now);
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
  const first = await findClaim(tables, claim, now);
  if (!first) throw new Error('A key that cannot be claimed has a claim');
  if (first.body_hash !== claim.bodyHash) return { state: 'conflict' };
  return { state: 'existing', runId: first.run_id };
}

const toValues = ({ bodyHash, expiresAt, runId }: KeyClaim, now: number) => ({
  body_hash: bodyHash,
  run_id: runId,
  created_at: now,
  expires_at: expiresAt,
});
