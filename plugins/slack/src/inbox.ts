import type {
  DatabaseEngine,
  HostMessages,
  PluginDatabase,
  PluginMigrations,
} from '@sibyl/plugin-kit';
import {
  createInboxTable,
  createResultTable,
  Inbox,
  type InboxRow,
  type ResultRow,
} from '@sibyl/plugin-kit/chat';
import { type Kysely, sql } from 'kysely';
import { SlackMessage } from './delivery.js';

interface InboxDeps {
  readonly database: PluginDatabase<SlackTables>;
  readonly clock: () => number;
  readonly hosts: Pick<HostMessages, 'hostId' | 'findDead'>;
}

export type SlackInbox = Inbox<SlackMessage>;

/** The messages from Slack; one may be delivered as several events, and again for an hour. */
export const createInbox = ({ database, clock, hosts }: InboxDeps): SlackInbox =>
  new Inbox({
    database,
    table: 'slack_inbox',
    clock,
    hosts,
    parse: (message) => SlackMessage.parse(message),
    identify: (message) => ({
      owner: getOwner(message),
      eventId: message.eventId,
      messageKey: getMessageKey(message),
      paused: getPausedTurn(message),
    }),
  });

function getPausedTurn(message: SlackMessage) {
  const { paused, sessionId } = message;
  return paused && sessionId ? { owner: getOwner(message), sessionId, ...paused } : undefined;
}

type PausedPlace = Pick<SlackMessage, 'team' | 'user' | 'channel' | 'thread'> & {
  readonly sessionId: string;
};

/** What the inbox keeps until a paused turn continues or ends: where to show it, and the posts to change. */
export function toContinuation(
  { team, user, channel, thread, sessionId }: PausedPlace,
  paused: NonNullable<SlackMessage['paused']>,
): SlackMessage {
  const eventId = `after ${paused.runId}`;
  const place = { team, user, channel, ...(thread && { thread }) };
  return { eventId, ts: eventId, text: '', ...place, sessionId, paused };
}

/** The user of a message as the host knows them. */
export const getOwner = ({ team, user }: Pick<SlackMessage, 'team' | 'user'>) =>
  `did:slack:${team}:${user}`;

/** Identifies a message across deliveries. */
export const getMessageKey = ({ team, channel, ts }: SlackMessage) => `${team}:${channel}:${ts}`;

/** The plugin's tables; timestamps are milliseconds. */
export interface SlackTables {
  slack_inbox: InboxRow;
  slack_threads: ThreadRow;
  slack_results: ResultRow;
}

export type Tables = Kysely<SlackTables>;

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
  async '0003-results'(tables) {
    await createResultTable(tables, 'slack_results');
  },
} satisfies PluginMigrations;

// biome-ignore lint/suspicious/noExplicitAny: a migration sees the tables of its time.
type AnyTables = Kysely<any>;

async function rebuildInbox(tables: AnyTables, engine: DatabaseEngine): Promise<void> {
  await createInboxTable(tables, 'slack_inbox_rebuilt')
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
