import { type Attachment, type MessagePart, OracleError, type ToolCall } from '@sibyl/protocol';
import { type Compilable, type Kysely, type SelectQueryBuilder, sql } from 'kysely';
import type { SessionKey } from '../bus/event-bus.js';
import { findFork, insertBranch, type PathKey, type TurnOrigin } from './branches.js';
import { type PreparedQuery, prepareQuery, type StoreContext } from './database.js';
import { copySources } from './plugin-stores.js';
import type { Schema } from './schema/index.js';
import { type MessageRow, messages, type StoredMessage } from './schema/messages.js';
import { queueForSearch, SESSION } from './search/search-store.js';
import { holdSession } from './session-store.js';

/** A message of a session. */
export interface Message extends StoredMessage {
  /** All messages with the same parent, this one included, if there are others. */
  readonly siblings?: readonly string[] | undefined;
}

/** The fields that new and stored messages have in common. */
export type MessageBody = Omit<
  StoredMessage,
  'owner' | 'id' | 'sessionId' | 'turn' | 'seq' | 'branch' | 'parent' | 'createdAt'
>;

/** With the ids of siblings, separated by commas, if they were read. */
export function toMessage(row: MessageRow & { readonly siblings?: string | null }): Message {
  const siblings = row.siblings?.split(',') ?? [];
  const message = messages.toValues(row);
  return siblings.length > 1 ? { ...message, siblings } : message;
}

type PartsField = Pick<MessageBody, 'parts'>;

export const listToolCalls = ({ parts = [] }: PartsField): ToolCall[] =>
  parts.flatMap((part) => (part.type === 'tool-call' ? [part.call] : []));

export const listAttachments = ({ parts = [] }: PartsField): Attachment[] =>
  parts.flatMap((part) => (part.type === 'file' ? [part.file] : []));

export const joinReasoning = ({ parts = [] }: PartsField): string =>
  parts.map((part) => (part.type === 'reasoning' ? part.text : '')).join('');

/** The parts of a user message; undefined if it is only its text. */
export function toQuestionParts(
  text: string,
  attachments: readonly Attachment[] = [],
): MessagePart[] | undefined {
  if (attachments.length === 0) return undefined;
  return [{ type: 'text', text }, ...attachments.map((file) => ({ type: 'file', file }) as const)];
}

/** How much a reader of all messages has in memory at a time. */
const READ_BYTES = 128 * 1024;

/** The messages of each session, in the order of their turns along a branch. */
export class MessageStore {
  private readonly context: StoreContext;

  constructor(context: StoreContext) {
    this.context = context;
  }

  /** Adds a message to the active branch; undefined if the owner has no such session. */
  append(message: NewMessage): Promise<Message | undefined> {
    return this.context.database.write((tables) => appendMessage(tables, message, this.context));
  }

  async find(key: {
    readonly owner: string;
    readonly messageId: string;
  }): Promise<Message | undefined> {
    const row = await this.context.database.tables
      .selectFrom('messages')
      .select(messages.columnNames)
      .where('owner', '=', key.owner)
      .where('id', '=', key.messageId)
      .executeTakeFirst();
    return row && toMessage(row);
  }

  /** The question that a message of the session is or answers. */
  async findQuestion({
    owner,
    sessionId,
    messageId,
  }: SessionKey & { readonly messageId: string }): Promise<Message | undefined> {
    const message = await this.find({ owner, messageId });
    if (message?.sessionId !== sessionId) return undefined;
    if (message.type === 'human') return message;
    return message.parent === undefined
      ? undefined
      : this.findQuestion({ owner, sessionId, messageId: message.parent });
  }

  /** Replaces the outputs of calls in an answer that is not complete. */
  setOutputs({ owner, messageId, outputs }: CallOutputs): Promise<void> {
    return this.context.database.write(async (tables) => {
      const row = await tables
        .selectFrom('messages')
        .select('parts')
        .where('owner', '=', owner)
        .where('id', '=', messageId)
        .where('is_complete', '=', 0)
        .executeTakeFirst();
      if (row?.parts == null) return;
      const parts = (JSON.parse(row.parts) as MessagePart[]).map((part): MessagePart => {
        const output = part.type === 'tool-call' ? outputs.get(part.call.id) : undefined;
        if (part.type !== 'tool-call' || output === undefined) return part;
        return { ...part, call: { ...part.call, status: 'done', output } };
      });
      await tables
        .updateTable('messages')
        .set({ parts: JSON.stringify(parts) })
        .where('owner', '=', owner)
        .where('id', '=', messageId)
        .execute();
    });
  }

  /** All messages of a path, oldest first, in pages: together they may not fit into memory. */
  async *pages(path: PathRequest): AsyncGenerator<readonly Message[]> {
    const { tables } = this.context.database;
    for await (const span of listSpans(tables, path, READ_BYTES))
      yield readSpan(tables, path, span);
  }

  /** The messages of the newest turns, oldest first. */
  async recent(request: RecentRequest & PathRequest): Promise<readonly Message[]> {
    const { tables } = this.context.database;
    return readSpan(tables, request, await findRecentSpan(tables, request));
  }

  /** The bytes that `copy` stores, at most. */
  measureCopy({ owner, sessionId, branch, turn }: Message): Promise<number> {
    return measureThrough(this.context.database.tables, { owner, sessionId, branch, turn });
  }

  /**
   * Copies the messages from the first one to `last` into an empty session, in portions, each of which is a unit of work.
   * The last one lists the session: one that was copied in part, by a host that was killed, appears in no list.
   */
  async copy(last: Message, sessionId: string): Promise<void> {
    const { owner, sessionId: from, branch } = last;
    const ids = new Map<string, string>();
    let [turn, seq] = [0, 0];
    for await (const page of this.pages({ owner, sessionId: from, branch })) {
      const end = page.findIndex(({ id }) => id === last.id) + 1;
      const copies = (end > 0 ? page.slice(0, end) : page).map((message): Message => {
        const id = this.context.newId();
        ids.set(message.id, id);
        seq += 1;
        if (message.type === 'human') turn += 1;
        const parent = message.parent && ids.get(message.parent);
        return { ...message, id, sessionId, turn, seq, branch: 0, parent, runId: undefined };
      });
      await this.insertCopies({ owner, sessionId }, copies, end > 0 ? from : undefined);
      if (end > 0) return;
    }
    // It was withdrawn meanwhile.
    throw new OracleError('message_not_found');
  }

  /** Copies of a session that is named with the last ones, which complete them. */
  private async insertCopies(
    { owner, sessionId }: SessionKey,
    copies: readonly Message[],
    completed: string | undefined,
  ): Promise<void> {
    const last = copies.at(-1);
    if (!last) return;
    const { database } = this.context;
    await database.write(async (tables) => {
      await holdSession(tables, database.engine, { owner, sessionId });
      for (const message of copies) await insertMessage(tables, messages.toRow(message));
      await tables
        .updateTable('sessions')
        .set({ last_seq: last.seq, last_turn: last.turn, active_message_id: last.id })
        .$if(completed !== undefined, (update) => update.set({ unlisted: 0 }))
        .where('owner', '=', owner)
        .where('id', '=', sessionId)
        .execute();
      if (completed === undefined) return;
      await copySources(tables, { owner, sessionId: completed }, sessionId);
      await queueForSearch(tables, { owner, source: SESSION, id: sessionId });
    });
  }

  /** A page of whole turns before or after a message, by default the newest. */
  page(request: PageRequest & PathRequest): Promise<PageResult> {
    return this.context.database.read((tables) => readPage(tables, request));
  }
}

export interface NewMessage extends MessageBody {
  readonly owner: string;
  readonly sessionId: string;
  /** The turn an answer belongs to; default the latest. A user message always opens a new one. */
  readonly turn?: number | undefined;
  /** Default: the question of an answer, and the end of the active branch for a question. */
  readonly parent?: string | undefined;
}

async function appendMessage(
  tables: Kysely<Schema>,
  { turn, parent, ...message }: NewMessage,
  context: StoreContext,
): Promise<Message | undefined> {
  const { owner, sessionId, type } = message;
  const id = context.newId();
  const now = context.clock();
  const opens = type === 'human' ? 1 : 0;
  const numbers = { owner, sessionId, now, leaf: id, turns: opens, messages: 1 };
  const [taken] = (await continueBranch(tables, numbers)).rows;
  if (taken === undefined) return undefined;
  const { seq, branch, previous, turn: latest } = taken;
  const stored = {
    ...message,
    id,
    seq,
    branch,
    turn: opens ? latest : (turn ?? latest),
    createdAt: now,
    parent: parent ?? (opens ? (previous ?? undefined) : undefined),
  };
  if (!opens && !parent) return saveAnswer(tables, stored);
  await insertMessage(tables, messages.toRow(stored));
  return stored;
}

interface CallOutputs {
  readonly owner: string;
  readonly messageId: string;
  /** JSON, by the id of the call. */
  readonly outputs: ReadonlyMap<string, string>;
}

interface TakenNumbers {
  readonly owner: string;
  readonly sessionId: string;
  readonly now: number;
  /** The new last message of the active branch. */
  readonly leaf: string;
  /** How many turns and messages to number. */
  readonly turns: number;
  readonly messages: number;
}

/** Assigns sequence and turn numbers in the order of storing; locks the session. */
const continueBranch = prepareQuery(
  (tables, { owner, sessionId, now, leaf, turns, messages }: TakenNumbers) =>
    tables
      .updateTable('sessions')
      .set((e) => ({
        last_seq: e('last_seq', '+', messages),
        last_turn: e('last_turn', '+', turns),
        last_updated_at: now,
        previous_message_id: e.ref('active_message_id'),
        active_message_id: leaf,
      }))
      .where('owner', '=', owner)
      .where('id', '=', sessionId)
      .returning([
        'last_seq as seq',
        'last_turn as turn',
        'active_branch as branch',
        'previous_message_id as previous',
      ]),
);

interface ForkNumbers extends TakenNumbers {
  /** Null for a new branch. */
  readonly branch: number | null;
  readonly branches: number;
}

const leaveBranch = prepareQuery(
  (tables, { owner, sessionId, now, leaf, turns, messages, branch, branches }: ForkNumbers) =>
    tables
      .updateTable('sessions')
      .set((e) => ({
        last_seq: e('last_seq', '+', messages),
        last_turn: e('last_turn', '+', turns),
        last_updated_at: now,
        active_branch: e.fn.coalesce(
          e.cast<number>(e.val(branch), 'bigint'),
          e('last_branch', '+', 1),
        ),
        last_branch: e('last_branch', '+', branches),
        active_message_id: leaf,
      }))
      .where('owner', '=', owner)
      .where('id', '=', sessionId)
      .returning([
        'last_seq as seq',
        'last_turn as turn',
        'active_branch as branch',
        'previous_message_id as previous',
      ]),
);

export interface NewTurn extends SessionKey {
  readonly requestId: string;
  readonly runId: string;
  /** The id of the answer, which will be the end of the active branch. */
  readonly answerId: string;
  readonly message: Pick<MessageBody, 'content' | 'parts' | 'metadata'>;
  /** Default: the end of the active branch. */
  readonly origin?: TurnOrigin | undefined;
}

export interface OpenedTurn {
  readonly turn: number;
  readonly branch: number;
  readonly createdAt: number;
  /** The question to answer again. */
  readonly questionId: string | null;
  /** The question to answer. */
  readonly askedId: string;
}

/** Stores the question of a new turn inside a unit of work, unless it is stored already. Locks the session. */
export async function openTurn(
  tables: Kysely<Schema>,
  { answerId, origin, message, ...ids }: NewTurn,
  { clock, newId }: StoreContext,
): Promise<OpenedTurn | 'unknown-session' | 'unknown-message'> {
  const createdAt = clock();
  const { owner, sessionId } = ids;
  const questionId = origin && 'questionId' in origin ? origin.questionId : null;
  const isAsked = questionId === null;
  const askedId = questionId ?? newId();
  const counts = {
    ...{ owner, sessionId, now: createdAt, leaf: answerId, turns: 1 },
    messages: isAsked ? 1 : 0,
  };
  const taken = origin
    ? await forkBranch(tables, { ...counts, origin, firstId: isAsked ? askedId : answerId })
    : (await continueBranch(tables, counts)).rows[0];
  if (taken === 'unknown-message') return taken;
  if (taken === undefined) return 'unknown-session';
  const { turn, seq, branch, previous } = taken;
  if (isAsked) {
    const place = { ...ids, id: askedId, turn, seq, branch, parent: previous ?? undefined };
    const question = { ...message, ...place, type: 'human', isComplete: true, createdAt } as const;
    await insertMessage(tables, messages.toRow(question));
  }
  return { turn, branch, createdAt, questionId, askedId };
}

interface NewFork extends TakenNumbers {
  readonly origin: TurnOrigin;
  /** The first message of a new branch. */
  readonly firstId: string;
}

/** As `continueBranch`, from an earlier message. */
async function forkBranch(tables: Kysely<Schema>, { origin, firstId, ...counts }: NewFork) {
  const fork = await findFork(tables, counts, origin);
  if (!fork) return 'unknown-message';
  const isNew = fork.branch === undefined;
  const numbers = { ...counts, branch: fork.branch ?? null, branches: isNew ? 1 : 0 };
  const [taken] = (await leaveBranch(tables, numbers)).rows;
  if (taken && isNew)
    await insertBranch(tables, {
      owner: counts.owner,
      session_id: counts.sessionId,
      branch: taken.branch,
      ...fork.base,
      parent_id: fork.parentId ?? '',
      original_id: fork.originalId,
      first_id: firstId,
    });
  return taken && { ...taken, previous: fork.parentId ?? null };
}

/** Stores the answer of a turn, or replaces the partial one of an earlier attempt, which keeps its number. */
export async function saveAnswer(
  tables: Kysely<Schema>,
  { id, ...answer }: Omit<Message, 'id'> & { readonly id: string | undefined },
): Promise<Message> {
  if (!id) throw new Error('An answer has an id since its turn began');
  const message = { ...answer, id };
  const { rows } = await insertAnswer(tables, messages.toRow(message));
  const { parent: _, ...stored } = message;
  return { ...stored, ...(rows[0]?.parent != null && { parent: rows[0].parent }) };
}

const insertMessage = prepareQuery((tables, row: MessageRow) =>
  tables.insertInto('messages').values(row),
);

/** What an answer keeps of the partial one of an earlier attempt. */
const KEPT: readonly (keyof MessageRow)[] = [
  ...(['owner', 'id', 'session_id', 'turn', 'seq', 'branch', 'parent', 'type'] as const),
  ...(['request_id', 'created_at'] as const),
];
const REPLACED = messages.columnNames.filter((column) => !KEPT.includes(column));

/** By default, an answer belongs to the question of its turn. */
const insertAnswer = prepareQuery((tables, row: MessageRow) =>
  tables
    .insertInto('messages')
    .values(({ selectFrom, fn, cast, val }) => ({
      ...row,
      parent: fn.coalesce(
        cast<string>(val(row.parent), 'text'),
        selectFrom('messages')
          .select('id')
          .where('owner', '=', row.owner)
          .where('session_id', '=', row.session_id)
          .where('branch', '=', row.branch)
          .where('turn', '=', row.turn)
          .orderBy('seq')
          .limit(1),
      ),
    }))
    .onConflict((c) =>
      c
        .columns(['owner', 'id'])
        .doUpdateSet(({ ref }) =>
          Object.fromEntries(REPLACED.map((column) => [column, ref(`excluded.${column}`)])),
        ),
    )
    .returning('parent'),
);

/** The branches of a path, each with the last of its messages that belongs to the path. */
interface PathRow {
  readonly branch: number;
  readonly turn: number;
  readonly seq: number;
}

type PathSchema = Schema & { readonly path: PathRow };
type PathMessages = SelectQueryBuilder<PathSchema, 'messages', object>;

const LAST_TURN = Number.MAX_SAFE_INTEGER;
const LAST = sql<number>`cast(${sql.lit(LAST_TURN)} as bigint)`;

/**
 * Prepares a query for messages of a path. Along a path, turns and numbers within a turn increase. Most sessions have
 * only branch 0, whose messages an index has in their order; on another branch the query may have to be built otherwise.
 */
function preparePathQuery<V extends PathKey, R>(
  build: (messages: PathMessages, values: V) => Compilable<R>,
  buildOther = build,
): PreparedQuery<V, R> {
  type Prepare = typeof prepareQuery<V & Record<keyof V, string | number | null>, R>;
  const prepare = prepareQuery as unknown as Prepare;
  const ofFirst = prepare((tables, values) => build(selectFirstBranch(tables, values), values));
  const ofOther = prepare((tables, values) => buildOther(selectPath(tables, values), values));
  return (tables, values) =>
    (values.branch === 0 ? ofFirst : ofOther)(tables, values as V & Record<keyof V, string>);
}

function selectFirstBranch(tables: Kysely<Schema>, { owner, sessionId, branch }: PathKey) {
  const messages = tables
    .selectFrom('messages')
    .where('messages.owner', '=', owner)
    .where('messages.session_id', '=', sessionId)
    .where('messages.branch', '=', branch);
  return messages as unknown as PathMessages;
}

/** Joined in this order also on SQLite: a lookup for each branch of the path, and one for its messages. */
function selectPath(tables: Kysely<Schema>, { owner, sessionId, branch }: PathKey): PathMessages {
  const messages = tables
    .withRecursive('path(branch, turn, seq)', (creator) =>
      creator
        .selectNoFrom([
          sql<number>`cast(${branch} as bigint)`.as('branch'),
          LAST.as('turn'),
          LAST.as('seq'),
        ])
        .unionAll(
          creator
            .selectFrom('path')
            .crossJoin('branches as b')
            .select([
              sql<number>`b.base_branch`.as('branch'),
              'b.base_turn as turn',
              'b.base_seq as seq',
            ])
            .where('b.owner', '=', owner)
            .where('b.session_id', '=', sessionId)
            .whereRef('b.branch', '=', 'path.branch')
            // Always so, except in forged archives of old versions: a path must end.
            .whereRef('b.base_branch', '<', 'b.branch'),
        ),
    )
    .selectFrom('path')
    .crossJoin('messages')
    .where('messages.owner', '=', owner)
    .where('messages.session_id', '=', sessionId)
    .whereRef('messages.branch', '=', 'path.branch')
    .where(sql<boolean>`(messages.turn, messages.seq) <= (path.turn, path.seq)`);
  return messages as unknown as PathMessages;
}

/** The ids of all messages that continue from the same one as this message, in the order of their creation. */
const SIBLINGS = sql<string | null>`(
  select coalesce(max(b.original_id) || ',', '') || string_agg(b.first_id, ',' order by b.branch)
  from branches b where b.owner = messages.owner and b.session_id = messages.session_id
  and b.parent_id = coalesce(messages.parent, ''))`;

/** Stored bytes of a page, after which it ends; one turn may have more. */
const PAGE_BYTES = 512 * 1024;
/** Of a question with all that follows it; only an imported conversation can have more, which would exhaust the memory. */
const SPAN_LIMITS = { bytes: 64 * 1024 * 1024, turns: 10_000 };

interface PageRequest extends PathKey {
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

type PageResult = { readonly ok: MessagePage } | { readonly error: 'unknown-cursor' };

/** A span of turns, both ends included. */
export interface TurnSpan {
  readonly first: number;
  readonly last: number;
}

const COLUMNS = messages.columnNames.map((name) => `messages.${name}` as const);

interface SpanRequest extends PathKey, TurnSpan {}

/**
 * Prepares a query for the messages of a span. SQLite limits what it reads of an index by one upper bound: on a path, it
 * would take that of each branch, and read all that follows the span.
 */
const prepareSpanQuery = <R>(build: (messages: PathMessages) => Compilable<R>) =>
  preparePathQuery(
    (messages, { first, last }: SpanRequest) =>
      build(messages.where('messages.turn', '>=', first).where('messages.turn', '<=', last)),
    (messages, span) => build(limitToSpan(messages, span)),
  );

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
interface PathRequest extends PathKey {
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
async function measureThrough(
  tables: Kysely<Schema>,
  { turn, ...path }: PathKey & { readonly turn: number },
): Promise<number> {
  const { rows } = await sumThrough(tables, { ...toPath(path), turn });
  const [{ count, bytes } = { count: 0, bytes: 0 }] = rows;
  return Number(count) * MESSAGE_BYTES + Number(bytes ?? 0);
}

interface RecentRequest extends PathKey {
  /** Excludes later turns, because a turn must not see messages queued behind it. */
  readonly throughTurn: number;
  /** Minimum size to read, if the session is large enough. */
  readonly bytes: number;
}

/** The newest turns that together take at least `bytes`, and less than twice as much and one turn. */
async function findRecentSpan(
  tables: Kysely<Schema>,
  { owner, sessionId, branch, throughTurn: last, bytes }: RecentRequest,
): Promise<TurnSpan> {
  // So many are always enough: the time does not grow with the length of the session.
  const limit = Math.ceil((2 * bytes) / MESSAGE_BYTES);
  const { rows } = await measureNewest(tables, { owner, sessionId, branch, turn: last, limit });
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
async function* listSpans(
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
