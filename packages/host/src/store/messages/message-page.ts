import type { Kysely } from 'kysely';
import type { Schema } from '../database/schema.js';
import { type Message, toMessage } from './message.js';

export interface PageRequest {
  readonly owner: string;
  readonly sessionId: string;
  /** How many turns. */
  readonly limit: number;
  /** A message id; at most one of the two. */
  readonly before?: string | undefined;
  readonly after?: string | undefined;
}

export interface MessagePage {
  /** Oldest first. */
  readonly messages: readonly Message[];
  readonly prevCursor: string | null;
  readonly nextCursor: string | null;
  readonly hasOlder: boolean;
  readonly hasNewer: boolean;
}

export type PageResult = { readonly ok: MessagePage } | { readonly error: 'unknown-cursor' };

/** The first and last turn of a page; for an empty page both lie beyond all turns. */
interface Span {
  readonly first: number;
  readonly last: number;
}

export async function readPage(tables: Kysely<Schema>, request: PageRequest): Promise<PageResult> {
  const span = await findSpan(tables, request);
  if (span === undefined) return { error: 'unknown-cursor' };
  const messages = await messagesIn(tables, request, span);
  const ends = await messagesOf(tables, request)
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
  if (request.after !== undefined) return spanAfter(tables, request, request.after);
  if (request.before !== undefined) return spanBefore(tables, request, request.before);
  return newestUpTo(tables, request, Number.MAX_SAFE_INTEGER);
}

async function spanBefore(
  tables: Kysely<Schema>,
  request: PageRequest,
  cursor: string,
): Promise<Span | undefined> {
  const edge = await findEdge(tables, request, cursor);
  if (edge === undefined) return undefined;
  // A turn the cursor splits comes whole.
  const last = edge.firstSeq < edge.seq ? edge.turn : edge.turn - 1;
  return newestUpTo(tables, request, last);
}

async function spanAfter(
  tables: Kysely<Schema>,
  request: PageRequest,
  cursor: string,
): Promise<Span | undefined> {
  const edge = await findEdge(tables, request, cursor);
  if (edge === undefined) return undefined;
  // Messages are stored out of the order of turns where turns wait: what is new may be an answer further up.
  const { first } = await messagesOf(tables, request)
    .select((e) => e.fn.min('turn').as('first'))
    .where('seq', '>', edge.seq)
    .executeTakeFirstOrThrow();
  const turns = await turnsOf(tables, request)
    .where('turn', '>=', first ?? Number.MAX_SAFE_INTEGER)
    .orderBy('turn', 'asc')
    .execute();
  return {
    first: turns[0]?.turn ?? Number.POSITIVE_INFINITY,
    last: turns.at(-1)?.turn ?? Number.POSITIVE_INFINITY,
  };
}

async function newestUpTo(
  tables: Kysely<Schema>,
  request: PageRequest,
  last: number,
): Promise<Span> {
  const turns = await turnsOf(tables, request)
    .where('turn', '<=', last)
    .orderBy('turn', 'desc')
    .execute();
  return {
    first: turns.at(-1)?.turn ?? Number.NEGATIVE_INFINITY,
    last: turns[0]?.turn ?? Number.NEGATIVE_INFINITY,
  };
}

/** Where the cursor's message stands in its turn. */
async function findEdge(tables: Kysely<Schema>, request: PageRequest, cursor: string) {
  const at = await messagesOf(tables, request)
    .select(['turn', 'seq'])
    .where('id', '=', cursor)
    .executeTakeFirst();
  if (at === undefined) return undefined;
  const { firstSeq, lastSeq } = await messagesOf(tables, request)
    .select((e) => [e.fn.min('seq').as('firstSeq'), e.fn.max('seq').as('lastSeq')])
    .where('turn', '=', at.turn)
    .executeTakeFirstOrThrow();
  return { ...at, firstSeq, lastSeq };
}

async function messagesIn(
  tables: Kysely<Schema>,
  request: PageRequest,
  { first, last }: Span,
): Promise<readonly Message[]> {
  if (!Number.isFinite(first)) return [];
  const rows = await messagesOf(tables, request)
    .selectAll()
    .where('turn', '>=', first ?? Number.MAX_SAFE_INTEGER)
    .where('turn', '<=', last)
    .orderBy('turn')
    .orderBy('seq')
    .execute();
  return rows.map(toMessage);
}

function turnsOf(tables: Kysely<Schema>, request: PageRequest) {
  return messagesOf(tables, request).select('turn').distinct().limit(request.limit);
}

function messagesOf(tables: Kysely<Schema>, { owner, sessionId }: PageRequest) {
  return tables
    .selectFrom('messages')
    .where('session_id', '=', sessionId)
    .where('owner', '=', owner);
}
