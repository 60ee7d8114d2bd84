import type { Kysely } from 'kysely';
import type { SessionKey } from '../bus/event-bus.js';
import type { StoreContext } from './database.js';
import type { Schema } from './schema/index.js';

/** A conversation of a client, by the id that the client gave it. */
export interface ThreadKey {
  readonly owner: string;
  /** The plugin that serves the client. */
  readonly surface: string;
  readonly threadId: string;
}

/** The ids that clients gave their conversations and messages. */
export class ThreadStore {
  constructor(private readonly context: StoreContext) {}

  /** The session of a thread. */
  find(key: ThreadKey): Promise<string | undefined> {
    return findThread(this.context.database.tables, key);
  }

  /** The id that a client gave the thread of a session. */
  async findId({
    owner,
    sessionId,
    surface,
  }: SessionKey & Pick<ThreadKey, 'surface'>): Promise<string | undefined> {
    const row = await this.context.database.tables
      .selectFrom('client_threads')
      .select('thread_id')
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .where('surface', '=', surface)
      .executeTakeFirst();
    return row?.thread_id;
  }

  /** The messages that a client knows by these ids, which may also be the ids of the messages themselves. */
  async messages(
    { owner, sessionId }: SessionKey,
    clientIds: readonly string[],
  ): Promise<ReadonlyMap<string, KnownMessage>> {
    if (clientIds.length === 0) return new Map();
    const { tables } = this.context.database;
    const mapped = await tables
      .selectFrom('client_ids')
      .select(['client_id', 'message_id'])
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .where('client_id', 'in', clientIds)
      .execute();
    const ids = new Map(mapped.map((row) => [row.client_id, row.message_id]));
    const rows = await tables
      .selectFrom('messages')
      .select(['id', 'type', 'content', 'parent', 'turn', 'run_id as runId'])
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .where('id', 'in', [...new Set([...ids.values(), ...clientIds])])
      .execute();
    const found = new Map(rows.map((row) => [row.id, row]));
    return new Map(
      clientIds.flatMap((clientId) => {
        const message = found.get(ids.get(clientId) ?? clientId);
        return message ? [[clientId, message]] : [];
      }),
    );
  }

  /** The ids that a client gave a message. */
  async clientIds({ owner, sessionId }: SessionKey, messageId: string): Promise<string[]> {
    const rows = await this.context.database.tables
      .selectFrom('client_ids')
      .select('client_id')
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .where('message_id', '=', messageId)
      .execute();
    return rows.map((row) => row.client_id);
  }

  /** The newest answer to a question. */
  async findAnswer({
    owner,
    sessionId,
    questionId,
  }: SessionKey & { readonly questionId: string }): Promise<string | undefined> {
    const row = await this.context.database.tables
      .selectFrom('messages')
      .select('id')
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .where('parent', '=', questionId)
      .where('type', '=', 'ai')
      .orderBy('turn', 'desc')
      .limit(1)
      .executeTakeFirst();
    return row?.id;
  }
}

/** A stored message that a client names. */
export interface KnownMessage {
  readonly id: string;
  readonly type: 'human' | 'ai';
  readonly content: string;
  readonly parent: string | null;
  readonly turn: number;
  /** The first run that answered it. */
  readonly runId: string | null;
}

export async function findThread(
  tables: Kysely<Schema>,
  { owner, surface, threadId }: ThreadKey,
): Promise<string | undefined> {
  const row = await tables
    .selectFrom('client_threads')
    .select('session_id')
    .where('owner', '=', owner)
    .where('surface', '=', surface)
    .where('thread_id', '=', threadId)
    .executeTakeFirst();
  return row?.session_id;
}

export async function insertThread(
  tables: Kysely<Schema>,
  { owner, surface, threadId }: ThreadKey,
  sessionId: string,
): Promise<void> {
  const row = { owner, surface, thread_id: threadId, session_id: sessionId };
  await tables.insertInto('client_threads').values(row).execute();
}

/** Remembers the ids that a client gave a message, inside a unit of work; an edited message takes over its id. */
export async function insertClientIds(
  tables: Kysely<Schema>,
  { owner, sessionId }: SessionKey,
  { clientIds, messageId }: { readonly clientIds: readonly string[]; readonly messageId: string },
): Promise<void> {
  for (const clientId of clientIds)
    await tables
      .insertInto('client_ids')
      .values({ owner, session_id: sessionId, client_id: clientId, message_id: messageId })
      .onConflict((c) =>
        c.columns(['owner', 'session_id', 'client_id']).doUpdateSet({ message_id: messageId }),
      )
      .execute();
}
