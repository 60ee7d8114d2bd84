import { type Kysely, sql } from 'kysely';
import type { SessionKey } from '../bus/event-bus.js';
import { prepareQuery, type Schema } from './database.js';
import { MESSAGE_COLUMNS, type Message, toMessage } from './message.js';

export interface PageRequest {
  readonly owner: string;
  readonly sessionId: string;
  /** How many turns. */
  readonly limit: number;
  /** A message id; at most one of the two. */
  readonly before?: string | undefined;
  readonly after?: string | undefined;
}

interface MessagePage {
  /** Oldest first. */
  readonly messages: readonly Message[];
  readonly prevCursor: string | null;
  readonly nextCursor: string | null;
  readonly hasOlder: boolean;
  readonly hasNewer: boolean;
}

export type PageResult = { readonly ok: MessagePage } | { readonly error: 'unknown-cursor' };

/** The first and last turn of a page; infinite for an empty page. */
interface Span {
  readonly first: number;
  readonly last: number;
}

export async function readPage(tables: Kysely<Schema>, request: PageRequest): Promise<PageResult> {
  const span = await findSpan(tables, request);
  if (span === undefined) return { error: 'unknown-cursor' };
  const messages = await readMessages(tables, request, span);
  const ends = await selectMessages(tables, request)
    .select((e) => [e.fn.min('turn').as('first'), e.fn.max('turn').as('last')])
    .executeTakeFirstOrThrow();
  return {
    ok: {
      messages,
      prevCursor: messages[0]?.id ?? null,
      nextCursor: messages.at(-1)?.id ?? null,
      hasOlder: ends.first !== null && ends.first < span.first,
      hasNewer: ends.last !== null && ends.last > span.last,
    },
  };
}

function findSpan(tables: Kysely<Schema>, request: PageRequest): Promise<Span | undefined> {
  if (request.after !== undefined) return findSpanAfter(tables, request, request.after);
  if (request.before !== undefined) return findSpanBefore(tables, request, request.before);
  return findNewestSpan(tables, request, Number.MAX_SAFE_INTEGER);
}

async function findSpanBefore(
  tables: Kysely<Schema>,
  request: PageRequest,
  cursor: string,
): Promise<Span | undefined> {
  const edge = await findEdge(tables, request, cursor);
  if (edge === undefined) return undefined;
  // A page contains whole turns, also if the cursor is inside one.
  const last = edge.firstSeq < edge.seq ? edge.turn : edge.turn - 1;
  return findNewestSpan(tables, request, last);
}

async function findSpanAfter(
  tables: Kysely<Schema>,
  request: PageRequest,
  cursor: string,
): Promise<Span | undefined> {
  const edge = await findEdge(tables, request, cursor);
  if (edge === undefined) return undefined;
  // With queued turns, messages are not stored in the order of turns: a new message may be the answer of an earlier turn.
  const { first } = await selectMessages(tables, request)
    .select((e) => e.fn.min('turn').as('first'))
    .where('seq', '>', edge.seq)
    .executeTakeFirstOrThrow();
  const turns = await selectTurns(tables, request)
    .where('turn', '>=', first ?? Number.MAX_SAFE_INTEGER)
    .orderBy('turn', 'asc')
    .execute();
  return {
    first: turns[0]?.turn ?? Number.POSITIVE_INFINITY,
    last: turns.at(-1)?.turn ?? Number.POSITIVE_INFINITY,
  };
}

async function findNewestSpan(
  tables: Kysely<Schema>,
  request: PageRequest,
  last: number,
): Promise<Span> {
  const turns = await selectTurns(tables, request)
    .where('turn', '<=', last)
    .orderBy('turn', 'desc')
    .execute();
  return {
    first: turns.at(-1)?.turn ?? Number.NEGATIVE_INFINITY,
    last: turns[0]?.turn ?? Number.NEGATIVE_INFINITY,
  };
}

/** Finds the message of the cursor, and the bounds of its turn. */
async function findEdge(tables: Kysely<Schema>, request: PageRequest, cursor: string) {
  const at = await selectMessages(tables, request)
    .select(['turn', 'seq'])
    .where('id', '=', cursor)
    .executeTakeFirst();
  if (at === undefined) return undefined;
  const { firstSeq, lastSeq } = await selectMessages(tables, request)
    .select((e) => [e.fn.min('seq').as('firstSeq'), e.fn.max('seq').as('lastSeq')])
    .where('turn', '=', at.turn)
    .executeTakeFirstOrThrow();
  return { ...at, firstSeq, lastSeq };
}

async function readMessages(
  tables: Kysely<Schema>,
  request: PageRequest,
  { first, last }: Span,
): Promise<readonly Message[]> {
  if (!Number.isFinite(first)) return [];
  const rows = await selectMessages(tables, request)
    .select(MESSAGE_COLUMNS)
    .where('turn', '>=', first ?? Number.MAX_SAFE_INTEGER)
    .where('turn', '<=', last)
    .orderBy('turn')
    .orderBy('seq')
    .execute();
  return rows.map(toMessage);
}

function selectTurns(tables: Kysely<Schema>, request: PageRequest) {
  return selectMessages(tables, request).select('turn').distinct().limit(request.limit);
}

function selectMessages(tables: Kysely<Schema>, { owner, sessionId }: PageRequest) {
  return tables
    .selectFrom('messages')
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId);
}

/** The stored size of a turn. */
export interface TurnSize {
  readonly turn: number;
  readonly bytes: number;
}

/** A span of turns, both ends included. */
export interface TurnSpan {
  readonly first: number;
  readonly last: number;
}

/** The sizes of the turns of a session up to a given turn, oldest first. */
export async function readSizes(
  tables: Kysely<Schema>,
  request: SessionKey & { readonly throughTurn: number },
): Promise<readonly TurnSize[]> {
  return (await selectSizes(tables, request)).rows;
}

const selectSizes = prepareQuery(
  (tables, { owner, sessionId, throughTurn }: SessionKey & { readonly throughTurn: number }) =>
    tables
      .selectFrom('messages')
      .select([
        'turn',
        sql<number>`sum(octet_length(content) + coalesce(octet_length(parts), 0))`.as('bytes'),
      ])
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .where('turn', '<=', throughTurn)
      .groupBy('turn')
      .orderBy('turn'),
);

/**
 * The first of the newest turns that together take at least `bytes`, and at most twice as much. The first turn changes
 * rarely, so that data derived from it, such as a summary, is valid for many turns.
 */
export function findFirstRecentTurn(sizes: readonly TurnSize[], bytes: number): number {
  const total = sizes.reduce((sum, size) => sum + size.bytes, 0);
  let left = Math.max(0, Math.floor(total / bytes) - 1) * bytes;
  const first = sizes.find((size) => {
    left -= size.bytes;
    return left < 0;
  });
  return first?.turn ?? 0;
}

/** Splits turns into spans of about `bytes` each, with at least one turn each. */
export function splitIntoSpans(sizes: readonly TurnSize[], bytes: number): TurnSpan[] {
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
