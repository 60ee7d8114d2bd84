import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

/** Approvals of tool calls, the rules of users, and what happened on their behalf. */
export const approvals: Migration = {
  // biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
  async up(tables: Kysely<any>) {
    await tables.schema
      .createTable('approvals')
      .addColumn('owner', 'text', (c) => c.notNull())
      .addColumn('id', 'text', (c) => c.notNull())
      .addColumn('session_id', 'text', (c) => c.notNull())
      .addColumn('run_id', 'text', (c) => c.notNull())
      .addColumn('call', 'text', (c) => c.notNull())
      .addColumn('call_id', 'text', (c) => c.notNull())
      .addColumn('tool', 'text', (c) => c.notNull())
      .addColumn('plugin', 'text', (c) => c.notNull())
      .addColumn('args_hash', 'text', (c) => c.notNull())
      .addColumn('required_by', 'text', (c) => c.notNull())
      .addColumn('request', 'text', (c) => c.notNull())
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .addColumn('expires_at', 'bigint', (c) => c.notNull())
      .addColumn('decision', 'text')
      .addColumn('decided_at', 'bigint')
      .addColumn('answer', 'text')
      .addColumn('receipt', 'text')
      .addPrimaryKeyConstraint('approvals_key', ['owner', 'id'])
      .execute();
    await tables.schema
      .createIndex('approvals_by_run')
      .on('approvals')
      .columns(['owner', 'run_id'])
      .execute();
    await tables.schema
      .createTable('rules')
      .addColumn('owner', 'text', (c) => c.notNull())
      .addColumn('cid', 'text', (c) => c.notNull())
      .addColumn('rules', 'text', (c) => c.notNull())
      .addColumn('token', 'text', (c) => c.notNull())
      .addColumn('expires_at', 'bigint')
      .addColumn('stored_at', 'bigint', (c) => c.notNull())
      .addPrimaryKeyConstraint('rules_key', ['owner'])
      .execute();
    await tables.schema
      .createTable('activity')
      .addColumn('owner', 'text', (c) => c.notNull())
      .addColumn('id', 'text', (c) => c.notNull())
      .addColumn('kind', 'text', (c) => c.notNull())
      .addColumn('session_id', 'text')
      .addColumn('run_id', 'text')
      .addColumn('approval_id', 'text')
      .addColumn('call_id', 'text')
      .addColumn('tool', 'text')
      .addColumn('outcome', 'text')
      .addColumn('decided_by', 'text')
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .addPrimaryKeyConstraint('activity_key', ['owner', 'id'])
      .execute();
  },
};

/** Users read what happened in one session, newest first. */
export const activityBySession: Migration = {
  // biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
  async up(tables: Kysely<any>) {
    await tables.schema
      .createIndex('activity_by_session')
      .on('activity')
      .columns(['owner', 'session_id', 'id'])
      .execute();
  },
};
