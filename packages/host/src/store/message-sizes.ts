import { type Kysely, sql } from 'kysely';
import { type PathKey, preparePathQuery } from './branches.js';
import { LAST_TURN, type TurnSpan, toPath } from './message-page.js';
import type { Schema } from './schema/index.js';

/** What a message takes beside its texts: otherwise, very many short ones would be read at once. */
const MESSAGE_BYTES = 1024;

/** The stored size of the texts of one message. */
interface MessageSize {
  readonly turn: number;
  readonly bytes: number;
}

const MEASURED = [
  'messages.turn',
  sql<number>`octet_length(content) + coalesce(octet_length(parts), 0)`.as('bytes'),
] as const;

interface SizesRequest extends PathKey {
  readonly turn: number;
  readonly limit: number;
}

const measureNewest = preparePathQuery((messages, { turn, limit }: SizesRequest) =>
  messages
    .select(MEASURED)
    .where('messages.turn', '<=', turn)
    .orderBy('messages.turn', 'desc')
    .orderBy('messages.seq', 'desc')
    .limit(limit),
);

const measureFrom = preparePathQuery((messages, { turn, limit }: SizesRequest) =>
  messages
    .select(MEASURED)
    .where('messages.turn', '>=', turn)
    .orderBy('messages.turn')
    .orderBy('messages.seq')
    .limit(limit),
);

const sumThrough = preparePathQuery((messages, { turn }: PathKey & { readonly turn: number }) =>
  messages
    .select(({ fn }) => [
      fn.countAll<number>().as('count'),
      sql<number | null>`sum(octet_length(content) + coalesce(octet_length(parts), 0))`.as('bytes'),
    ])
    .where('messages.turn', '<=', turn),
);

/** What the messages of a path take until the end of a turn. */
export async function measureThrough(
  tables: Kysely<Schema>,
  { turn, ...path }: PathKey & { readonly turn: number },
): Promise<number> {
  const { rows } = await sumThrough(tables, { ...toPath(path), turn });
  const [{ count, bytes } = { count: 0, bytes: 0 }] = rows;
  return Number(count) * MESSAGE_BYTES + Number(bytes ?? 0);
}

export interface RecentRequest extends PathKey {
  /** Excludes later turns, because a turn must not see messages queued behind it. */
  readonly throughTurn: number;
  /** Minimum size to read, if the session is large enough. */
  readonly bytes: number;
}

/** The newest turns that together take at least `bytes`, and less than twice as much and one turn. */
export async function findRecentSpan(
  tables: Kysely<Schema>,
  { throughTurn: last, bytes, ...path }: RecentRequest,
): Promise<TurnSpan> {
  // So many are always enough: the time does not grow with the length of the session.
  const limit = Math.ceil((2 * bytes) / MESSAGE_BYTES);
  const { rows } = await measureNewest(tables, { ...toPath(path), turn: last, limit });
  return { first: findFirstRecentTurn(rows, bytes), last };
}

/**
 * The first turn to read of messages that are measured from the newest one. It changes rarely, so that data derived from it,
 * such as a summary, is valid for many turns: of those that fit, it is the one that the largest power of two divides.
 */
export function findFirstRecentTurn(sizes: readonly MessageSize[], bytes: number): number {
  const fitting: number[] = [];
  let sum = 0;
  for (const { turn, bytes: size } of sizes) {
    if (sum >= 2 * bytes) break;
    sum += MESSAGE_BYTES + size;
    if (sum >= bytes && (sum < 2 * bytes || fitting.length === 0)) fitting.push(turn);
  }
  if (sum < 2 * bytes) return sizes.at(-1)?.turn ?? 0;
  return fitting.reduce((best, turn) => (findLowestBit(turn) > findLowestBit(best) ? turn : best));
}

const findLowestBit = (turn: number) => BigInt(turn) & -BigInt(turn);

/** How many messages are measured at once. */
const MAX_MEASURED = 5_000;

/** All turns of a path in spans of about `bytes` each, oldest first. */
export async function* listSpans(
  tables: Kysely<Schema>,
  path: PathKey,
  bytes: number,
): AsyncGenerator<TurnSpan> {
  for (let turn: number | undefined = 0; turn !== undefined; ) {
    const request: SizesRequest = { ...toPath(path), turn, limit: MAX_MEASURED };
    const { rows } = await measureFrom(tables, request);
    const { sizes, last } = rows.length < MAX_MEASURED ? { sizes: rows } : takeWholeTurns(rows);
    yield* splitIntoSpans(sizes, bytes, last ?? LAST_TURN);
    turn = last && last + 1;
  }
}

/** Without the last turn, which may have more messages and is measured again, unless there is no other. */
export function takeWholeTurns(sizes: readonly MessageSize[]) {
  const newest = sizes.at(-1)?.turn ?? 0;
  const whole = sizes.filter(({ turn }) => turn < newest);
  return whole.length > 0
    ? { sizes: whole, last: whole.at(-1)?.turn ?? 0 }
    : { sizes, last: newest };
}

/** Splits turns until `last` into spans of about `bytes` each, with at least one turn each. */
export function splitIntoSpans(
  sizes: readonly MessageSize[],
  bytes: number,
  last: number,
): TurnSpan[] {
  const spans: TurnSpan[] = [];
  let [first, sum] = [sizes[0]?.turn ?? 0, 0];
  for (const [turn, messages] of Map.groupBy(sizes, (size) => size.turn)) {
    const size = messages.reduce((total, message) => total + MESSAGE_BYTES + message.bytes, 0);
    if (sum > 0 && sum + size > bytes) {
      spans.push({ first, last: turn - 1 });
      [first, sum] = [turn, 0];
    }
    sum += size;
  }
  return [...spans, { first, last }];
}
