import type { Kysely } from 'kysely';
import { sql } from 'kysely';
import { prepared } from '../database/prepared.js';
import type { Schema } from '../database/schema.js';
import type { SessionKey } from '../sessions/session-store.js';

/** How much is stored of a turn. */
export interface TurnSize {
  readonly turn: number;
  readonly bytes: number;
}

/** A span of turns, both ends included. */
export interface TurnSpan {
  readonly first: number;
  readonly last: number;
}

/** The turns of a session up to one, oldest first; of their messages nothing is read but the length. */
export async function readSizes(
  tables: Kysely<Schema>,
  request: SessionKey & { readonly throughTurn: number },
): Promise<readonly TurnSize[]> {
  return (await selectSizes(tables, request)).rows;
}

const selectSizes = prepared(
  (tables, { owner, sessionId, throughTurn }: SessionKey & { readonly throughTurn: number }) =>
    tables
      .selectFrom('messages')
      .select([
        'turn',
        sql<number>`sum(octet_length(content) + coalesce(octet_length(tool_calls), 0) + coalesce(octet_length(reasoning), 0))`.as(
          'bytes',
        ),
      ])
      .where('session_id', '=', sessionId)
      .where('owner', '=', owner)
      .where('turn', '<=', throughTurn)
      .groupBy('turn')
      .orderBy('turn'),
);

/**
 * The first of the newest turns that together take `bytes`, or up to twice as much: where they begin moves on
 * seldom, so that what is known of the first of them, such as a summary, stays good for many turns.
 */
export function firstOfNewest(sizes: readonly TurnSize[], bytes: number): number {
  const total = sizes.reduce((sum, size) => sum + size.bytes, 0);
  let left = Math.max(0, Math.floor(total / bytes) - 1) * bytes;
  const first = sizes.find((size) => {
    left -= size.bytes;
    return left < 0;
  });
  return first?.turn ?? 0;
}

/** Cuts turns into spans of about `bytes` each, at least one turn in each. */
export function spansOf(sizes: readonly TurnSize[], bytes: number): TurnSpan[] {
  const spans: TurnSpan[] = [];
  let [first, sum] = [sizes[0]?.turn ?? 0, 0];
  for (const { turn, bytes: size } of sizes) {
    if (sum > 0 && sum + size > bytes) {
      spans.push({ first, last: turn - 1 });
      [first, sum] = [turn, 0];
    }
    sum += size;
  }
  return [...spans, { first, last: Number.MAX_SAFE_INTEGER }];
}
