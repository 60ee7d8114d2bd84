import { OracleError } from '@sibyl/protocol';
import { type Compilable, type Kysely, sql } from 'kysely';
import { type PathKey, type PathMessages, preparePathQuery, SIBLINGS } from './branches.js';
import { type Message, toMessage } from './message.js';
import type { Schema } from './schema/index.js';
import { messages } from './schema/messages.js';

/** Stored bytes of a page, after which it ends; one turn may have more. */
const PAGE_BYTES = 512 * 1024;
/** Of a question with all that follows it; only an imported conversation can have more, which would exhaust the memory. */
const SPAN_LIMITS = { bytes: 64 * 1024 * 1024, turns: 10_000 };

export interface PageRequest extends PathKey {
  /** How many turns at most. */
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

/** A span of turns, both ends included. */
export interface TurnSpan {
  readonly first: number;
  readonly last: number;
}

export const LAST_TURN = Number.MAX_SAFE_INTEGER;

const COLUMNS = messages.columnNames.map((name) => `messages.${name}` as const);

interface SpanRequest extends PathKey, TurnSpan {}

/**
 * Prepares a query for the messages of a span. SQLite limits what it reads of an index by one upper bound: on a path, it
 * would take that of each branch, and read all that follows the span.
 */
function prepareSpanQuery<R>(build: (messages: PathMessages) => Compilable<R>) {
  const ofFirst = preparePathQuery((messages, { first, last }: SpanRequest) =>
    build(messages.where('messages.turn', '>=', first).where('messages.turn', '<=', last)),
  );
  const ofOther = preparePathQuery((messages, span: SpanRequest) =>
    build(limitToSpan(messages, span)),
  );
  return (tables: Kysely<Schema>, span: SpanRequest) =>
    (span.branch === 0 ? ofFirst : ofOther)(tables, span);
}

/** The same messages of a path within a span, with conditions of which one can be the upper bound of an index. */
const limitToSpan = (messages: PathMessages, { owner, sessionId, first, last }: SpanRequest) =>
  messages
    .clearWhere()
    .where('messages.owner', '=', owner)
    .where('messages.session_id', '=', sessionId)
    .where(sql<boolean>`messages.branch = path.branch`)
    .where('messages.turn', '>=', first)
    .where(sql<boolean>`messages.turn <= case when path.turn < ${last} then path.turn
      else ${last} end`)
    .where(sql<boolean>`(messages.turn + 0, messages.seq) <= (path.turn, path.seq)`);

const listMessages = prepareSpanQuery((messages) =>
  messages.select(COLUMNS).orderBy('messages.turn').orderBy('messages.seq'),
);

const listWithSiblings = prepareSpanQuery((messages) =>
  messages
    .select(COLUMNS)
    .select(SIBLINGS.as('siblings'))
    .orderBy('messages.turn')
    .orderBy('messages.seq'),
);

/** A path, and whether its session has other branches. */
export interface PathRequest extends PathKey {
  readonly isBranched?: boolean | undefined;
}

/** The messages of a span of turns, with their siblings if the session is branched. */
export async function readSpan(
  tables: Kysely<Schema>,
  { owner, sessionId, branch, isBranched }: PathRequest,
  { first, last }: TurnSpan,
): Promise<readonly Message[]> {
  const list = isBranched ? listWithSiblings : listMessages;
  const { rows } = await list(tables, { owner, sessionId, branch, first, last });
  return rows.map(toMessage);
}

/** Reads a page of whole turns: a question and all that follows until the next one. */
export async function readPage(
  tables: Kysely<Schema>,
  request: PageRequest & PathRequest,
): Promise<PageResult> {
  const span = await findSpan(tables, request);
  if (span === 'unknown-cursor') return { error: span };
  const messages = span ? await readSpan(tables, request, span) : [];
  const { first, last } = await readEnds(tables, toPath(request));
  return {
    ok: {
      messages,
      prevCursor: messages[0]?.id ?? null,
      nextCursor: messages.at(-1)?.id ?? null,
      hasOlder: first !== null && first < (span?.first ?? (request.after ? LAST_TURN : 0)),
      hasNewer: last !== null && last > (span?.last ?? (request.after ? LAST_TURN : 0)),
    },
  };
}

export const toPath = ({ owner, sessionId, branch }: PathKey): PathKey => ({
  owner,
  sessionId,
  branch,
});

/** Null if there are no messages. */
type TurnEnds = { readonly [End in keyof TurnSpan]: number | null };

const NO_TURNS: TurnEnds = { first: null, last: null };

/** On one branch two queries: SQLite looks up one end in an index, but reads all of it for both. */
async function readEnds(tables: Kysely<Schema>, path: PathKey): Promise<TurnEnds> {
  if (path.branch !== 0) return (await findEnds(tables, path)).rows[0] ?? NO_TURNS;
  const [first] = (await findFirstTurn(tables, path)).rows;
  const [last] = (await findLastTurn(tables, path)).rows;
  return { first: first?.turn ?? null, last: last?.turn ?? null };
}

const findEnds = preparePathQuery((messages, _: PathKey) =>
  messages.select((e) => [
    e.fn.min('messages.turn').as('first'),
    e.fn.max('messages.turn').as('last'),
  ]),
);

const findFirstTurn = preparePathQuery((messages, _: PathKey) =>
  messages.select((e) => e.fn.min('messages.turn').as('turn')),
);

const findLastTurn = preparePathQuery((messages, _: PathKey) =>
  messages.select((e) => e.fn.max('messages.turn').as('turn')),
);

/** Undefined for an empty page. */
async function findSpan(
  tables: Kysely<Schema>,
  request: PageRequest,
): Promise<TurnSpan | undefined | 'unknown-cursor'> {
  const { before, after } = request;
  if (after !== undefined) return findSpanAfter(tables, request, after);
  if (before !== undefined) return findSpanBefore(tables, request, before);
  return findNewestSpan(tables, request, LAST_TURN);
}

/** A page contains whole turns, also if the cursor is inside one. */
async function findSpanBefore(tables: Kysely<Schema>, request: PageRequest, cursor: string) {
  const [at] = (await findCursor(tables, { ...toPath(request), cursor })).rows;
  if (at === undefined) return 'unknown-cursor';
  const start = await findStart(tables, request, at.turn);
  const { rows } = await findFirst(tables, { ...toPath(request), turn: start });
  const isFirst = rows[0]?.id === cursor;
  return findNewestSpan(tables, request, isFirst ? start - 1 : start);
}

/** With queued turns, messages are not stored in the order of turns: a new message may be the answer of an earlier turn. */
async function findSpanAfter(tables: Kysely<Schema>, request: PageRequest, cursor: string) {
  const path = toPath(request);
  const [at] = (await findCursor(tables, { ...path, cursor })).rows;
  if (at === undefined) return 'unknown-cursor';
  const [next] = (await findLater(tables, { ...path, seq: at.seq })).rows;
  if (next?.turn == null) return undefined;
  const first = await findStart(tables, request, next.turn);
  const { rows } = await listStartsFrom(tables, { ...path, turn: first, limit: request.limit + 1 });
  const ends = [...rows.slice(1).map(({ turn }) => turn - 1), LAST_TURN].slice(0, request.limit);
  const spans = ends.map((last, i) => ({ first: rows[i]?.turn ?? first, last }));
  return { first, last: (await fitPage(tables, path, spans)).last };
}

/** The newest turns that begin at `turn` or earlier. */
async function findNewestSpan(tables: Kysely<Schema>, request: PageRequest, turn: number) {
  const path = toPath(request);
  const { rows } = await listStartsUntil(tables, { ...path, turn, limit: request.limit });
  if (rows.length === 0) return undefined;
  const [following] = (await listStartsFrom(tables, { ...path, turn: turn + 1, limit: 1 })).rows;
  const last = following ? following.turn - 1 : LAST_TURN;
  const spans = rows.map(({ turn: first }, i) => {
    const later = rows[i - 1];
    return { first, last: later ? later.turn - 1 : last };
  });
  return { first: (await fitPage(tables, path, spans)).first, last };
}

/** The last of some questions with all that follows them, in the order in which they are wanted, that fits on a page; at least the first. */
async function fitPage(
  tables: Kysely<Schema>,
  path: PathKey,
  spans: readonly TurnSpan[],
): Promise<TurnSpan> {
  const [first = { first: 0, last: LAST_TURN }, ...others] = spans;
  const end = spans.at(-1) ?? first;
  const sizes = await readSizes(tables, {
    ...path,
    first: Math.min(first.first, end.first),
    last: Math.max(first.last, end.last),
  });
  const list = (span: TurnSpan) =>
    sizes.filter(({ turn }) => turn >= span.first && turn <= span.last);
  const measure = (span: TurnSpan) => list(span).reduce((sum, { bytes }) => sum + bytes, 0);
  let fitting = first;
  let sum = measure(first);
  if (sum > SPAN_LIMITS.bytes || list(first).length > SPAN_LIMITS.turns)
    throw new OracleError('bad_request', { message: TOO_LONG });
  for (const span of others) {
    sum += measure(span);
    if (sum > PAGE_BYTES) break;
    fitting = span;
  }
  return fitting;
}

const TOO_LONG = 'These answers are too long for a page: read them with GET /messages/:sessionId';

/** The turn of the question that a turn belongs to: an answer given again has another turn than its question. */
async function findStart(tables: Kysely<Schema>, key: PathKey, turn: number): Promise<number> {
  const { rows } = await listStartsUntil(tables, { ...toPath(key), turn, limit: 1 });
  return rows[0]?.turn ?? turn;
}

const findCursor = preparePathQuery((messages, { cursor }: PathKey & { readonly cursor: string }) =>
  messages.select(['messages.turn', 'messages.seq']).where('messages.id', '=', cursor),
);

const findFirst = preparePathQuery((messages, { turn }: PathKey & { readonly turn: number }) =>
  messages.select('messages.id').where('messages.turn', '=', turn).orderBy('messages.seq').limit(1),
);

const findLater = preparePathQuery((messages, { seq }: PathKey & { readonly seq: number }) =>
  messages.select((e) => e.fn.min('messages.turn').as('turn')).where('messages.seq', '>', seq),
);

interface StartsRequest extends PathKey {
  readonly turn: number;
  readonly limit: number;
}

const isStart = sql<boolean>`(messages.type = 'human' or messages.parent is null)`;

const listStartsUntil = preparePathQuery((messages, { turn, limit }: StartsRequest) =>
  messages
    .select('messages.turn')
    .distinct()
    .where('messages.turn', '<=', turn)
    .where(isStart)
    .orderBy('messages.turn', 'desc')
    .limit(limit),
);

const listStartsFrom = preparePathQuery((messages, { turn, limit }: StartsRequest) =>
  messages
    .select('messages.turn')
    .distinct()
    .where('messages.turn', '>=', turn)
    .where(isStart)
    .orderBy('messages.turn')
    .limit(limit),
);

/** The stored size of the texts of a turn. */
interface TurnSize {
  readonly turn: number;
  readonly bytes: number;
}

/** The sizes of the turns of a span of a path, oldest first. */
async function readSizes(
  tables: Kysely<Schema>,
  { first, last, ...key }: PathKey & TurnSpan,
): Promise<readonly TurnSize[]> {
  return (await selectSizes(tables, { ...toPath(key), first, last })).rows;
}

const selectSizes = prepareSpanQuery((messages) =>
  messages
    .select([
      'messages.turn',
      sql<number>`sum(octet_length(content) + coalesce(octet_length(parts), 0))`.as('bytes'),
    ])
    .groupBy('messages.turn')
    .orderBy('messages.turn'),
);
