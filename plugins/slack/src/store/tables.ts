import type { PluginMigrations } from '@sibyl/plugin-kit';
import type { Kysely } from 'kysely';

/** The plugin's tables; timestamps are milliseconds. */
export interface SlackTables {
  slack_inbox: InboxRow;
  slack_threads: ThreadRow;
}

export type Tables = Kysely<SlackTables>;

export interface InboxRow {
  event_id: string;
  /** Team, channel and time of the message: one message may be delivered as several events. */
  message_key: string;
  message: string;
  state: 'waiting' | 'done';
  attempts: number;
  /** JSON of the messages that hold the answer so far. */
  replies: string;
  holder: string;
  lease_until: number;
  created_at: number;
}

interface ThreadRow {
  team: string;
  channel: string;
  thread: string;
  user_id: string;
  session_id: string;
}

export const migrations: PluginMigrations = {
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
};
