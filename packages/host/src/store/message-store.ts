import { type MessagePart, OracleError } from '@sibyl/protocol';
import type { Kysely } from 'kysely';
import type { SessionKey } from '../bus/event-bus.js';
import { type Fork, findFork, insertBranch, type TurnOrigin } from './branches.js';
import type { StoreContext } from './database.js';
import { type Message, type MessageBody, toMessage } from './message.js';
import {
  type PageRequest,
  type PageResult,
  type PathRequest,
  readPage,
  readSpan,
} from './message-page.js';
import { findRecentSpan, listSpans, measureThrough, type RecentRequest } from './message-sizes.js';
import { copySources } from './plugin-stores.js';
import { prepareQuery } from './prepared-query.js';
import type { Schema } from './schema/index.js';
import { type MessageRow, messages } from './schema/messages.js';
import { queueForSearch, SESSION } from './search/search-store.js';
import { holdSession } from './session-store.js';

/** How much a reader of all messages has in memory at a time. */
const PAGE_BYTES = 128 * 1024;

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
    for await (const span of listSpans(tables, path, PAGE_BYTES))
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
      for (const message of copies) await insertMessage(tables, message);
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
  return opens || parent ? insertMessage(tables, stored) : saveAnswer(tables, stored);
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
  const questionId = origin && 'questionId' in origin ? origin.questionId : null;
  const { owner, sessionId } = ids;
  const counts = { owner, sessionId, now: createdAt, leaf: answerId, turns: 1 };
  if (questionId !== null) {
    const firstId = answerId;
    const taken = await takeNumbers(tables, { ...counts, messages: 0, origin, firstId });
    return typeof taken === 'string'
      ? taken
      : { ...taken, createdAt, questionId, askedId: questionId };
  }
  const id = newId();
  const taken = await takeNumbers(tables, { ...counts, messages: 1, origin, firstId: id });
  if (typeof taken === 'string') return taken;
  const question = { ...message, ...ids, ...taken, id, createdAt } as const;
  await insertMessage(tables, { ...question, type: 'human', isComplete: true });
  return { ...taken, createdAt, questionId, askedId: id };
}

async function takeNumbers(
  tables: Kysely<Schema>,
  {
    origin,
    firstId,
    ...counts
  }: TakenNumbers & { readonly origin: TurnOrigin | undefined; readonly firstId: string },
) {
  const fork = origin && (await findFork(tables, counts, origin));
  if (origin && !fork) return 'unknown-message';
  const taken = fork
    ? await startFork(tables, { ...counts, fork, firstId })
    : (await continueBranch(tables, counts)).rows[0];
  if (taken === undefined) return 'unknown-session';
  const { turn, seq, branch, previous } = taken;
  return { turn, seq, branch, parent: fork ? fork.parentId : (previous ?? undefined) };
}

async function startFork(
  tables: Kysely<Schema>,
  { fork, firstId, ...counts }: TakenNumbers & { readonly fork: Fork; readonly firstId: string },
) {
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
  return taken;
}

async function insertMessage(tables: Kysely<Schema>, message: Message): Promise<Message> {
  await insertRow(tables, messages.toRow(message));
  return message;
}

/** Stores the answer of a turn, or replaces the partial one of an earlier attempt, which keeps its number. */
export async function saveAnswer(
  tables: Kysely<Schema>,
  { id, ...answer }: Omit<Message, 'id'> & { readonly id: string | undefined },
): Promise<Message> {
  if (id === undefined) throw new Error('An answer has an id since its turn began');
  const message = { ...answer, id };
  const { rows } = await insertAnswer(tables, messages.toRow(message));
  const { parent: _, ...stored } = message;
  return { ...stored, ...(rows[0]?.parent != null && { parent: rows[0].parent }) };
}

const insertRow = prepareQuery((tables, row: MessageRow) =>
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
