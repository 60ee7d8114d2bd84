import { randomUUID } from 'node:crypto';
import type { DatabaseEngine, PluginDatabase, PluginMigrations } from '@sibyl/plugin-kit';
import { type Kysely, sql } from 'kysely';
import { z } from 'zod';
import { SlackMessage } from './delivery.js';

/** A process that does not renew its messages for this long has abandoned them. */
const LEASE_MS = 60_000;
/** Slack delivers again for an hour at most. */
const MEMORY_MS = 24 * 60 * 60 * 1000;
/** With the pauses between them, four hours. */
const MAX_ATTEMPTS = 8;
const FIRST_PAUSE_MS = 5_000;

const Replies = z.array(z.string());

/** A message to answer, and the Slack messages that contain its partial answer. */
export interface Waiting {
  readonly message: SlackMessage;
  readonly replies: readonly string[];
}

interface InboxDeps {
  readonly database: PluginDatabase<SlackTables>;
  readonly clock: () => number;
}

/** Stores every message until it is answered, so that none is lost or answered twice. */
export class Inbox {
  private readonly deps: InboxDeps;
  private readonly holder = randomUUID();

  constructor(deps: InboxDeps) {
    this.deps = deps;
  }

  /** Stores a message for this process to answer; false if it is stored already. */
  accept(message: SlackMessage): Promise<boolean> {
    const { database, clock } = this.deps;
    const now = clock();
    return database.write(async (tables) => {
      const accepted = await tables
        .insertInto('slack_inbox')
        .values({
          ...toKey(message),
          message_key: getMessageKey(message),
          message: JSON.stringify(message),
          state: 'waiting',
          attempts: 1,
          replies: '[]',
          holder: this.holder,
          lease_until: now + LEASE_MS,
          created_at: now,
        })
        .onConflict((c) => c.doNothing())
        .returning('event_id')
        .executeTakeFirst();
      return accepted !== undefined;
    });
  }

  /** Records the Slack messages of the answer, for a process that continues it. */
  saveReplies(message: SlackMessage, replies: readonly string[]): Promise<void> {
    return this.update(message, { replies: JSON.stringify(replies) });
  }

  finish(message: SlackMessage): Promise<void> {
    return this.update(message, { state: 'done' });
  }

  /** Schedules another attempt, by any process, up to a limit. */
  async postpone(message: SlackMessage, attempts: number): Promise<void> {
    if (attempts >= MAX_ATTEMPTS) return this.finish(message);
    const pause = FIRST_PAUSE_MS * 3 ** attempts;
    await this.update(message, { holder: '', lease_until: this.deps.clock() + pause });
  }

  /** Releases a message that was not tried, so that any process can take it over immediately. */
  release(message: SlackMessage): Promise<void> {
    const { database } = this.deps;
    return database.write(async (tables) => {
      await tables
        .updateTable('slack_inbox')
        .set((e) => ({ holder: '', lease_until: 0, attempts: e('attempts', '-', 1) }))
        .where((e) => e.and(toKey(message)))
        .where('state', '=', 'waiting')
        .execute();
    });
  }

  /** Extends the lease of this process's messages. */
  async renew(): Promise<void> {
    const { database, clock } = this.deps;
    const values = { lease_until: clock() + LEASE_MS };
    await database.write(async (tables) => {
      await tables
        .updateTable('slack_inbox')
        .set(values)
        .where('holder', '=', this.holder)
        .where('state', '=', 'waiting')
        .execute();
    });
  }

  /** Takes over postponed and abandoned messages, oldest first. */
  async takeOver(limit: number): Promise<readonly (Waiting & { readonly attempts: number })[]> {
    const { database, clock } = this.deps;
    const now = clock();
    const rows = await database.write((tables) =>
      tables
        .updateTable('slack_inbox')
        .set((e) => ({
          holder: this.holder,
          lease_until: now + LEASE_MS,
          attempts: e('attempts', '+', 1),
        }))
        .where((e) =>
          e(
            e.refTuple('owner', 'event_id'),
            'in',
            e
              .selectFrom('slack_inbox')
              .select(['owner', 'event_id'])
              .where('state', '=', 'waiting')
              .where('lease_until', '<', now)
              .orderBy('created_at')
              .limit(limit)
              .$asTuple('owner', 'event_id'),
          ),
        )
        // Checked again, since another process may have been first.
        .where('state', '=', 'waiting')
        .where('lease_until', '<', now)
        .returningAll()
        .execute(),
    );
    return rows.map(({ message, replies, attempts }) => ({
      message: SlackMessage.parse(JSON.parse(message)),
      replies: Replies.parse(JSON.parse(replies)),
      attempts,
    }));
  }

  /** Deletes messages that Slack does not deliver again. */
  async deleteOld(): Promise<void> {
    const { database, clock } = this.deps;
    const before = clock() - MEMORY_MS;
    await database.write(async (tables) => {
      await tables
        .deleteFrom('slack_inbox')
        .where('state', '=', 'done')
        .where('created_at', '<', before)
        .execute();
    });
  }

  private async update(message: SlackMessage, values: Partial<InboxRow>): Promise<void> {
    await this.deps.database.write(async (tables) => {
      await tables
        .updateTable('slack_inbox')
        .set(values)
        .where((e) => e.and(toKey(message)))
        .execute();
    });
  }
}

/** The user of a message as the host knows them. */
export const getOwner = ({ team, user }: Pick<SlackMessage, 'team' | 'user'>) =>
  `did:slack:${team}:${user}`;

const toKey = (message: SlackMessage) => ({ owner: getOwner(message), event_id: message.eventId });

/** Identifies a message across deliveries. */
export const getMessageKey = ({ team, channel, ts }: SlackMessage) => `${team}:${channel}:${ts}`;

/** The plugin's tables; timestamps are milliseconds. */
export interface SlackTables {
  slack_inbox: InboxRow;
  slack_threads: ThreadRow;
}

export type Tables = Kysely<SlackTables>;

export interface InboxRow {
  owner: string;
  event_id: string;
  /** Team, channel and time of the message: one message may be delivered as several events. */
  message_key: string;
  message: string;
  state: 'waiting' | 'done';
  attempts: number;
  /** JSON of the Slack messages that contain the partial answer. */
  replies: string;
  holder: string;
  lease_until: number;
  created_at: number;
}

interface ThreadRow {
  owner: string;
  channel: string;
  thread: string;
  session_id: string;
}

export const migrations = {
  async '0001-slack'(tables) {
    await tables.schema
      .createTable('slack_inbox')
      .addColumn('event_id', 'text', (c) => c.primaryKey().notNull())
      .addColumn('message_key', 'text', (c) => c.notNull().unique())
      .addColumn('message', 'text', (c) => c.notNull())
      .addColumn('state', 'text', (c) => c.notNull())
      .addColumn('attempts', 'bigint', (c) => c.notNull())
      .addColumn('replies', 'text', (c) => c.notNull())
      .addColumn('holder', 'text', (c) => c.notNull())
      .addColumn('lease_until', 'bigint', (c) => c.notNull())
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .execute();
    await tables.schema
      .createIndex('slack_inbox_by_state')
      .on('slack_inbox')
      .columns(['state', 'lease_until'])
      .execute();
    await tables.schema
      .createTable('slack_threads')
      .addColumn('team', 'text', (c) => c.notNull())
      .addColumn('channel', 'text', (c) => c.notNull())
      .addColumn('thread', 'text', (c) => c.notNull())
      .addColumn('user_id', 'text', (c) => c.notNull())
      .addColumn('session_id', 'text', (c) => c.notNull())
      .addPrimaryKeyConstraint('slack_threads_pk', ['team', 'channel', 'thread', 'user_id'])
      .execute();
  },
  async '0002-owners'(tables, engine) {
    await rebuildInbox(tables, engine);
    await rebuildThreads(tables);
  },
} satisfies PluginMigrations;

// biome-ignore lint/suspicious/noExplicitAny: a migration sees the tables of its time.
type AnyTables = Kysely<any>;

async function rebuildInbox(tables: AnyTables, engine: DatabaseEngine): Promise<void> {
  await tables.schema
    .createTable('slack_inbox_rebuilt')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('event_id', 'text', (c) => c.notNull())
    .addColumn('message_key', 'text', (c) => c.notNull())
    .addColumn('message', 'text', (c) => c.notNull())
    .addColumn('state', 'text', (c) => c.notNull())
    .addColumn('attempts', 'bigint', (c) => c.notNull())
    .addColumn('replies', 'text', (c) => c.notNull())
    .addColumn('holder', 'text', (c) => c.notNull())
    .addColumn('lease_until', 'bigint', (c) => c.notNull())
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addPrimaryKeyConstraint('slack_inbox_by_event', ['owner', 'event_id'])
    .addUniqueConstraint('slack_inbox_by_message', ['owner', 'message_key'])
    .execute();
  const message = engine === 'postgres' ? sql`message::json` : sql`message`;
  await sql`insert into slack_inbox_rebuilt
    select 'did:slack:' || (${message} ->> 'team') || ':' || (${message} ->> 'user'),
      event_id, message_key, message, state, attempts, replies, holder, lease_until, created_at
    from slack_inbox`.execute(tables);
  await tables.schema.dropTable('slack_inbox').execute();
  await tables.schema.alterTable('slack_inbox_rebuilt').renameTo('slack_inbox').execute();
  await tables.schema
    .createIndex('slack_inbox_by_state')
    .on('slack_inbox')
    .columns(['state', 'lease_until'])
    .execute();
}

async function rebuildThreads(tables: AnyTables): Promise<void> {
  await tables.schema
    .createTable('slack_threads_rebuilt')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('channel', 'text', (c) => c.notNull())
    .addColumn('thread', 'text', (c) => c.notNull())
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addPrimaryKeyConstraint('slack_threads_by_owner', ['owner', 'channel', 'thread'])
    .execute();
  await sql`insert into slack_threads_rebuilt
    select 'did:slack:' || team || ':' || user_id, channel, thread, session_id
    from slack_threads`.execute(tables);
  await tables.schema.dropTable('slack_threads').execute();
  await tables.schema.alterTable('slack_threads_rebuilt').renameTo('slack_threads').execute();
}
