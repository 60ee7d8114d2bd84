import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
type Tables = Kysely<any>;

/** The first schema. */
export const initial: Migration = {
  async up(tables: Tables) {
    await createSessions(tables);
    await createRooms(tables);
    await createMessages(tables);
    await createRuns(tables);
    await createRunFrames(tables);
    await createDelegations(tables);
    await createRevocations(tables);
    await createIdempotencyKeys(tables);
    await createPluginStores(tables);
  },
};

async function createSessions(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('sessions')
    .addColumn('id', 'text', (c) => c.primaryKey().notNull())
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('title', 'text', (c) => c.notNull())
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addColumn('last_updated_at', 'bigint', (c) => c.notNull())
    .addColumn('oracle_did', 'text', (c) => c.notNull())
    .addColumn('oracle_name', 'text')
    .addColumn('oracle_entity_did', 'text')
    .addColumn('room_id', 'text', (c) => c.notNull())
    .addColumn('last_seq', 'bigint', (c) => c.notNull())
    .addColumn('last_turn', 'bigint', (c) => c.notNull())
    .execute();
  // Read backwards it is the order of the session list, so that list needs no sort.
  await tables.schema
    .createIndex('sessions_by_update')
    .on('sessions')
    .columns(['owner', 'last_updated_at', 'id'])
    .execute();
}

async function createRooms(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('rooms')
    .addColumn('id', 'text', (c) => c.primaryKey().notNull())
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('oracle_did', 'text', (c) => c.notNull())
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addUniqueConstraint('rooms_one_per_oracle', ['owner', 'oracle_did'])
    .execute();
  await tables.schema
    .createTable('room_state')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('room_id', 'text', (c) => c.notNull())
    .addColumn('key', 'text', (c) => c.notNull())
    .addColumn('data', 'text')
    .addColumn('updated_at', 'bigint', (c) => c.notNull())
    .addPrimaryKeyConstraint('room_state_pk', ['owner', 'room_id', 'key'])
    .execute();
}

async function createMessages(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('messages')
    .addColumn('id', 'text', (c) => c.primaryKey().notNull())
    .addColumn('session_id', 'text', (c) =>
      c.notNull().references('sessions.id').onDelete('cascade'),
    )
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('turn', 'bigint', (c) => c.notNull())
    .addColumn('seq', 'bigint', (c) => c.notNull())
    .addColumn('type', 'text', (c) => c.notNull())
    .addColumn('content', 'text', (c) => c.notNull())
    .addColumn('tool_calls', 'text')
    .addColumn('reasoning', 'text')
    .addColumn('attachments', 'text')
    .addColumn('metadata', 'text')
    .addColumn('request_id', 'text', (c) => c.notNull())
    .addColumn('run_id', 'text')
    .addColumn('is_complete', 'integer', (c) => c.notNull())
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addUniqueConstraint('messages_in_order', ['session_id', 'turn', 'seq'])
    .execute();
}

async function createRuns(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('runs')
    .addColumn('id', 'text', (c) => c.primaryKey().notNull())
    .addColumn('session_id', 'text', (c) =>
      c.notNull().references('sessions.id').onDelete('cascade'),
    )
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('request_id', 'text', (c) => c.notNull())
    .addColumn('turn', 'bigint', (c) => c.notNull())
    .addColumn('status', 'text', (c) => c.notNull())
    .addColumn('error_kind', 'text')
    .addColumn('error_message', 'text')
    .addColumn('message_id', 'text')
    .addColumn('last_seq', 'bigint', (c) => c.notNull())
    .addColumn('input_tokens', 'bigint', (c) => c.notNull())
    .addColumn('output_tokens', 'bigint', (c) => c.notNull())
    .addColumn('cached_tokens', 'bigint', (c) => c.notNull())
    .addColumn('started_at', 'bigint', (c) => c.notNull())
    .addColumn('updated_at', 'bigint', (c) => c.notNull())
    .addColumn('host_id', 'text', (c) => c.notNull())
    .addColumn('lease_until', 'bigint', (c) => c.notNull())
    .addUniqueConstraint('runs_in_order', ['session_id', 'turn'])
    .execute();
  await tables.schema
    .createIndex('runs_by_status')
    .on('runs')
    .columns(['status', 'updated_at'])
    .execute();
}

async function createRunFrames(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('run_frames')
    .addColumn('run_id', 'text', (c) => c.notNull().references('runs.id').onDelete('cascade'))
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('seq', 'bigint', (c) => c.notNull())
    .addColumn('event', 'text', (c) => c.notNull())
    .addColumn('data', 'text', (c) => c.notNull())
    .addPrimaryKeyConstraint('run_frames_pk', ['run_id', 'seq'])
    .execute();
}

async function createDelegations(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('delegations')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('oracle_did', 'text', (c) => c.notNull())
    .addColumn('cid', 'text', (c) => c.notNull())
    .addColumn('ciphertext', 'text', (c) => c.notNull())
    .addColumn('issuer', 'text', (c) => c.notNull())
    .addColumn('audience', 'text', (c) => c.notNull())
    .addColumn('expires_at', 'bigint')
    .addColumn('stored_at', 'bigint', (c) => c.notNull())
    .addPrimaryKeyConstraint('delegations_pk', ['owner', 'oracle_did'])
    .execute();
}

async function createRevocations(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('revocations')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('cid', 'text', (c) => c.notNull())
    .addColumn('expires_at', 'bigint')
    .addPrimaryKeyConstraint('revocations_pk', ['cid', 'owner'])
    .execute();
  await tables.schema
    .createTable('single_use')
    .addColumn('cid', 'text', (c) => c.primaryKey().notNull())
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('expires_at', 'bigint', (c) => c.notNull())
    .execute();
  await tables.schema
    .createIndex('single_use_by_expiry')
    .on('single_use')
    .column('expires_at')
    .execute();
}

async function createIdempotencyKeys(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('idempotency_keys')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('key', 'text', (c) => c.notNull())
    .addColumn('body_hash', 'text', (c) => c.notNull())
    .addColumn('run_id', 'text', (c) => c.notNull())
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addColumn('expires_at', 'bigint', (c) => c.notNull())
    .addPrimaryKeyConstraint('idempotency_keys_pk', ['owner', 'key'])
    .execute();
  await tables.schema
    .createIndex('idempotency_keys_by_expiry')
    .on('idempotency_keys')
    .column('expires_at')
    .execute();
}

/** What the host keeps on behalf of plugins; their own tables are theirs to make. */
async function createPluginStores(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('session_state')
    .addColumn('session_id', 'text', (c) =>
      c.notNull().references('sessions.id').onDelete('cascade'),
    )
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('plugin', 'text', (c) => c.notNull())
    .addColumn('key', 'text', (c) => c.notNull())
    .addColumn('value', 'text', (c) => c.notNull())
    .addPrimaryKeyConstraint('session_state_pk', ['session_id', 'plugin', 'key'])
    .execute();
  await tables.schema
    .createTable('secrets')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('plugin', 'text', (c) => c.notNull())
    .addColumn('name', 'text', (c) => c.notNull())
    .addColumn('ciphertext', 'text', (c) => c.notNull())
    .addPrimaryKeyConstraint('secrets_pk', ['owner', 'plugin', 'name'])
    .execute();
  await tables.schema
    .createTable('blobs')
    .addColumn('id', 'text', (c) => c.primaryKey().notNull())
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('plugin', 'text', (c) => c.notNull())
    .addColumn('media_type', 'text', (c) => c.notNull())
    .addColumn('size', 'bigint', (c) => c.notNull())
    // SQLite keeps bytes as they are in a column of any type.
    .addColumn('data', 'bytea', (c) => c.notNull())
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .execute();
  await tables.schema
    .createIndex('blobs_by_owner')
    .on('blobs')
    .columns(['owner', 'plugin', 'size'])
    .execute();
}
