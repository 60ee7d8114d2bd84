import type { Kysely } from 'kysely';
import type { SessionKey } from '../bus/event-bus.js';
import { type MessageRow, prepareQuery, type Schema, type StoreContext } from './database.js';
import {
  MESSAGE_COLUMNS,
  type Message,
  type MessageBody,
  toMessage,
  toMessageRow,
} from './message.js';
import {
  findFirstRecentTurn,
  type PageRequest,
  type PageResult,
  readPage,
  readSizes,
  splitIntoSpans,
  type TurnSpan,
} from './message-page.js';

export interface RecentRequest extends SessionKey {
  /** Excludes later turns, because a turn must not see messages queued behind it. */
  readonly throughTurn: number;
  /** Minimum size to read, if the session is large enough. */
  readonly bytes: number;
}

/** How much a reader of all messages has in memory at a time. */
const PAGE_BYTES = 128 * 1024;

const listMessages = prepareQuery(
  (tables, { owner, sessionId, first, last }: SessionKey & TurnSpan) =>
    tables
      .selectFrom('messages')
      .select(MESSAGE_COLUMNS)
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .where('turn', '>=', first)
      .where('turn', '<=', last)
      .orderBy('turn')
      .orderBy('seq'),
);

/** The messages of each session, in the order of their turns. */
export class MessageStore {
  private readonly context: StoreContext;

  constructor(context: StoreContext) {
    this.context = context;
  }

  /** Undefined if the owner has no such session. */
  append(message: NewMessage): Promise<Message | undefined> {
    return this.context.database.write((tables) => appendMessage(tables, message, this.context));
  }

  async find(key: {
    readonly owner: string;
    readonly messageId: string;
  }): Promise<Message | undefined> {
    const row = await this.context.database.tables
      .selectFrom('messages')
      .select(MESSAGE_COLUMNS)
      .where('owner', '=', key.owner)
      .where('id', '=', key.messageId)
      .executeTakeFirst();
    return row && toMessage(row);
  }

  /** All messages of a session, oldest first, in pages: together they may not fit into memory. */
  async *pages({ owner, sessionId }: SessionKey): AsyncGenerator<readonly Message[]> {
    const all = { owner, sessionId, throughTurn: Number.MAX_SAFE_INTEGER };
    const sizes = await readSizes(this.context.database.tables, all);
    for (const span of splitIntoSpans(sizes, PAGE_BYTES))
      yield this.list({ owner, sessionId }, span);
  }

  /** The messages of the newest turns, oldest first: less than twice the requested bytes, plus the first turn. */
  async recent({
    owner,
    sessionId,
    throughTurn,
    bytes,
  }: RecentRequest): Promise<readonly Message[]> {
    const { tables } = this.context.database;
    const sizes = await readSizes(tables, { owner, sessionId, throughTurn });
    const span = { first: findFirstRecentTurn(sizes, bytes), last: throughTurn };
    return this.list({ owner, sessionId }, span);
  }

  /** A page of whole turns before or after a message, by default the newest. */
  page(request: PageRequest): Promise<PageResult> {
    return this.context.database.read((tables) => readPage(tables, request));
  }

  private async list(key: SessionKey, span: TurnSpan): Promise<readonly Message[]> {
    const { rows } = await listMessages(this.context.database.tables, { ...key, ...span });
    return rows.map(toMessage);
  }
}

export interface NewMessage extends MessageBody {
  readonly owner: string;
  readonly sessionId: string;
  readonly id?: string | undefined;
  /** The turn an answer belongs to; default the latest. A user message always opens a new one. */
  readonly turn?: number | undefined;
  /** Default: the question of an answer, and the end of the previous turn for a question; null for none. */
  readonly parent?: string | null | undefined;
}

/** Stores a message inside a unit of work; undefined if the owner has no such session. */
export async function appendMessage(
  tables: Kysely<Schema>,
  { turn, ...request }: NewMessage,
  { clock, newId }: StoreContext,
): Promise<Message | undefined> {
  const now = clock();
  const opensTurn = request.type === 'human' ? 1 : 0;
  const { owner, sessionId } = request;
  const { rows } = await takeNumbers(tables, { owner, sessionId, opensTurn, now });
  const [numbers] = rows;
  if (numbers === undefined) return undefined;
  return insertMessage(tables, {
    ...request,
    id: request.id ?? newId(),
    seq: numbers.last_seq,
    turn: opensTurn ? numbers.last_turn : (turn ?? numbers.last_turn),
    createdAt: now,
  });
}

interface NumbersRequest {
  readonly owner: string;
  readonly sessionId: string;
  readonly opensTurn: number;
  readonly now: number;
}

/** Assigns sequence and turn numbers in the order of storing; locks the session. */
const takeNumbers = prepareQuery((tables, { owner, sessionId, opensTurn, now }: NumbersRequest) =>
  tables
    .updateTable('sessions')
    .set((e) => ({
      last_seq: e('last_seq', '+', 1),
      last_turn: e('last_turn', '+', opensTurn),
      last_updated_at: now,
    }))
    .where('owner', '=', owner)
    .where('id', '=', sessionId)
    .returning(['last_seq', 'last_turn']),
);

type MessageToInsert = Omit<Message, 'parent'> & Pick<NewMessage, 'parent'>;

/** Stores a message with the given numbers inside a unit of work. */
export async function insertMessage(
  tables: Kysely<Schema>,
  { parent, ...message }: MessageToInsert,
): Promise<Message> {
  const row = toMessageRow({ ...message, parent: parent ?? undefined });
  const { rows } =
    parent !== undefined
      ? await insertRow(tables, row)
      : message.type === 'human'
        ? await insertQuestion(tables, { ...row, previous: message.turn - 1 })
        : await insertAnswer(tables, row);
  return { ...message, ...(rows[0]?.parent != null && { parent: rows[0].parent }) };
}

/** Stores the answer of a turn, or replaces the partial one of an earlier attempt, which keeps its number. */
export async function saveAnswer(
  tables: Kysely<Schema>,
  { id, ...answer }: Omit<Message, 'id' | 'parent'> & Pick<NewMessage, 'id'>,
): Promise<Message> {
  if (id === undefined) throw new Error('An answer has an id since its turn began');
  const message = { ...answer, id };
  const { rows } = await insertAnswer(tables, toMessageRow(message));
  return { ...message, ...(rows[0]?.parent != null && { parent: rows[0].parent }) };
}

const insertRow = prepareQuery((tables, row: MessageRow) =>
  tables.insertInto('messages').values(row).returning('parent'),
);

/** An answer that is not stored yet already has an id. */
const insertQuestion = prepareQuery(
  (tables, { previous, ...row }: MessageRow & { readonly previous: number }) =>
    tables
      .insertInto('messages')
      .values(({ selectFrom, fn }) => ({
        ...row,
        parent: fn.coalesce(
          selectFrom('runs')
            .select('message_id')
            .where('owner', '=', row.owner)
            .where('session_id', '=', row.session_id)
            .where('turn', '=', previous)
            .orderBy('attempt', 'desc')
            .limit(1),
          selectFrom('messages')
            .select('id')
            .where('owner', '=', row.owner)
            .where('session_id', '=', row.session_id)
            .where('turn', '<=', previous)
            .orderBy('turn', 'desc')
            .orderBy('seq', 'desc')
            .limit(1),
        ),
      }))
      .returning('parent'),
);

const insertAnswer = prepareQuery((tables, row: MessageRow) =>
  tables
    .insertInto('messages')
    .values(({ selectFrom }) => ({
      ...row,
      parent: selectFrom('messages')
        .select('id')
        .where('owner', '=', row.owner)
        .where('session_id', '=', row.session_id)
        .where('turn', '=', row.turn)
        .orderBy('seq')
        .limit(1),
    }))
    .onConflict((c) =>
      c.columns(['owner', 'id']).doUpdateSet((e) => ({
        content: e.ref('excluded.content'),
        parts: e.ref('excluded.parts'),
        run_id: e.ref('excluded.run_id'),
        is_complete: e.ref('excluded.is_complete'),
        error: e.ref('excluded.error'),
      })),
    )
    .returning('parent'),
);
