import { randomUUID } from 'node:crypto';
import type { PluginDatabase, PluginMigrations } from '@sibyl/plugin-kit';
import type { Kysely } from 'kysely';
import { SlackMessage } from './delivery.js';

/** How long a process may be silent before its messages count as left behind. */
const LEASE_MS = 60_000;
/** Slack delivers again for an hour at most. */
const MEMORY_MS = 24 * 60 * 60 * 1000;
/** With the pauses between them, four hours. */
const MAX_ATTEMPTS = 8;
const FIRST_PAUSE_MS = 5_000;

/** A message to be answered, and the messages that hold its answer so far. */
export interface Waiting {
  readonly message: SlackMessage;
  readonly replies: readonly string[];
}

interface InboxParts {
  readonly database: PluginDatabase<SlackTables>;
  readonly clock: () => number;
}

/** Keeps every message from its delivery until it is answered, so that none is lost or answered twice. */
export class Inbox {
  readonly #parts: InboxParts;
  readonly #holder = randomUUID();

  constructor(parts: InboxParts) {
    this.#parts = parts;
  }

  /** Keeps a message for this process to answer; false if it is known already. */
  accept(message: SlackMessage): Promise<boolean> {
    const { database, clock } = this.#parts;
    const now = clock();
    return database.write(async (tables) => {
      const accepted = await tables
        .insertInto('slack_inbox')
        .values({
          event_id: message.eventId,
          message_key: keyOf(message),
          message: JSON.stringify(message),
          state: 'waiting',
          attempts: 1,
          replies: '[]',
          holder: this.#holder,
          lease_until: now + LEASE_MS,
          created_at: now,
        })
        .onConflict((c) => c.doNothing())
        .returning('event_id')
        .executeTakeFirst();
      return accepted !== undefined;
    });
  }

  /** Notes where the answer is, so that whoever goes on with it finds it. */
  noteReplies({ eventId }: SlackMessage, replies: readonly string[]): Promise<void> {
    return this.#update(eventId, { replies: JSON.stringify(replies) });
  }

  finish({ eventId }: SlackMessage): Promise<void> {
    return this.#update(eventId, { state: 'done' });
  }

  /** Leaves a message for later, for this process or another, unless that was tried often enough. */
  async postpone({ eventId }: SlackMessage, attempts: number): Promise<void> {
    if (attempts >= MAX_ATTEMPTS) return this.#update(eventId, { state: 'done' });
    const pause = FIRST_PAUSE_MS * 3 ** attempts;
    await this.#update(eventId, { holder: '', lease_until: this.#parts.clock() + pause });
  }

  /** Gives a message back that was not tried, for this process or another to take over at once. */
  release({ eventId }: SlackMessage): Promise<void> {
    const { database } = this.#parts;
    return database.write(async (tables) => {
      await tables
        .updateTable('slack_inbox')
        .set((e) => ({ holder: '', lease_until: 0, attempts: e('attempts', '-', 1) }))
        .where('event_id', '=', eventId)
        .where('state', '=', 'waiting')
        .execute();
    });
  }

  /** Tells the others that this process lives. */
  async renew(): Promise<void> {
    const { database, clock } = this.#parts;
    const values = { lease_until: clock() + LEASE_MS };
    await database.write(async (tables) => {
      await tables
        .updateTable('slack_inbox')
        .set(values)
        .where('holder', '=', this.#holder)
        .where('state', '=', 'waiting')
        .execute();
    });
  }

  /** Takes over what was postponed, or left behind by a process that is gone: the oldest, at most `limit`. */
  async takeOver(limit: number): Promise<readonly (Waiting & { readonly attempts: number })[]> {
    const { database, clock } = this.#parts;
    const now = clock();
    const rows = await database.write((tables) =>
      tables
        .updateTable('slack_inbox')
        .set((e) => ({
          holder: this.#holder,
          lease_until: now + LEASE_MS,
          attempts: e('attempts', '+', 1),
        }))
        .where('event_id', 'in', (e) =>
          e
            .selectFrom('slack_inbox')
            .select('event_id')
            .where('state', '=', 'waiting')
            .where('lease_until', '<', now)
            .orderBy('created_at')
            .limit(limit),
        )
        // Once more: another process may have been first.
        .where('state', '=', 'waiting')
        .where('lease_until', '<', now)
        .returningAll()
        .execute(),
    );
    return rows.map(({ message, replies, attempts }) => ({
      message: SlackMessage.parse(JSON.parse(message)),
      replies: JSON.parse(replies),
      attempts,
    }));
  }

  /** Forgets what cannot be delivered again. */
  async forgetOld(): Promise<void> {
    const { database, clock } = this.#parts;
    const before = clock() - MEMORY_MS;
    await database.write(async (tables) => {
      await tables
        .deleteFrom('slack_inbox')
        .where('state', '=', 'done')
        .where('created_at', '<', before)
        .execute();
    });
  }

  async #update(eventId: string, values: Partial<InboxRow>): Promise<void> {
    await this.#parts.database.write(async (tables) => {
      await tables.updateTable('slack_inbox').set(values).where('event_id', '=', eventId).execute();
    });
  }
}

/** Names a message wherever it turns up. */
export const keyOf = ({ team, channel, ts }: SlackMessage) => `${team}:${channel}:${ts}`;

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
