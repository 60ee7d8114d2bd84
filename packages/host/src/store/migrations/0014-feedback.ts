import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

/** What users think of answers. */
export const feedback: Migration = {
  // biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
  async up(tables: Kysely<any>) {
    await tables.schema
      .createTable('feedback')
      .addColumn('owner', 'text', (c) => c.notNull())
      .addColumn('session_id', 'text', (c) => c.notNull())
      .addColumn('message_id', 'text', (c) => c.notNull())
      .addColumn('rating', 'text', (c) => c.notNull())
      .addColumn('comment', 'text')
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .addColumn('updated_at', 'bigint', (c) => c.notNull())
      .addPrimaryKeyConstraint('feedback_key', ['owner', 'session_id', 'message_id'])
      .addForeignKeyConstraint(
        'feedback_session',
        ['owner', 'session_id'],
        'sessions',
        ['owner', 'id'],
        (c) => c.onDelete('cascade'),
      )
      .execute();
  },
};
