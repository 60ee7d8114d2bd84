import { type Kysely, PostgresAdapter, sql } from 'kysely';
import type { Migration } from 'kysely/migration';

// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
type Tables = Kysely<any>;

/** Branches of sessions; what is searched for, and what is not in its index yet. */
export const history: Migration = {
  async up(tables: Tables) {
    await addBranches(tables);
    await createBranches(tables);
    await createSearch(tables);
    await createTriggers(tables);
    await sql`insert into search_queue (owner, source, id, version)
      select owner, 'session', id, 1 from sessions`.execute(tables);
  },
};

async function addBranches(tables: Tables): Promise<void> {
  const add = (table: string, column: string, type: string) =>
    sql`alter table ${sql.table(table)} add column ${sql.ref(column)} ${sql.raw(type)}`.execute(
      tables,
    );
  await add('messages', 'branch', 'bigint not null default 0');
  await add('runs', 'branch', 'bigint not null default 0');
  await add('runs', 'question_id', 'text');
  await add('sessions', 'active_branch', 'bigint not null default 0');
  await add('sessions', 'last_branch', 'bigint not null default 0');
  await add('sessions', 'active_message_id', 'text');
  await add('sessions', 'previous_message_id', 'text');
  // An answer that is not stored yet already has an id.
  await sql`update sessions set active_message_id = coalesce(
    (select message_id from runs where runs.owner = sessions.owner and runs.session_id = sessions.id
      and runs.turn = sessions.last_turn order by attempt desc limit 1),
    (select id from messages where messages.owner = sessions.owner and messages.session_id = sessions.id
      order by turn desc, seq desc limit 1))`.execute(tables);
  await tables.schema.dropIndex('messages_in_order').execute();
  await tables.schema
    .createIndex('messages_of_branch')
    .unique()
    .on('messages')
    .columns(['owner', 'session_id', 'branch', 'turn', 'seq'])
    .execute();
}

async function createBranches(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('branches')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('branch', 'bigint', (c) => c.notNull())
    .addColumn('base_branch', 'bigint')
    .addColumn('base_turn', 'bigint', (c) => c.notNull())
    .addColumn('base_seq', 'bigint', (c) => c.notNull())
    .addColumn('parent_id', 'text', (c) => c.notNull())
    .addColumn('original_id', 'text')
    .addColumn('first_id', 'text', (c) => c.notNull())
    .addPrimaryKeyConstraint('branches_key', ['owner', 'session_id', 'branch'])
    .addForeignKeyConstraint(
      'branches_session',
      ['owner', 'session_id'],
      'sessions',
      ['owner', 'id'],
      (c) => c.onDelete('cascade'),
    )
    .execute();
  await tables.schema
    .createIndex('branches_by_parent')
    .on('branches')
    .columns(['owner', 'session_id', 'parent_id', 'branch'])
    .execute();
}

const isPostgres = (tables: Tables) => tables.getExecutor().adapter instanceof PostgresAdapter;

/** On SQLite the index is a separate file. */
async function createSearch(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('search_queue')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('source', 'text', (c) => c.notNull())
    .addColumn('id', 'text', (c) => c.notNull())
    .addColumn('version', 'bigint', (c) => c.notNull())
    .addPrimaryKeyConstraint('search_queue_key', ['owner', 'source', 'id'])
    .execute();
  if (!isPostgres(tables)) return;
  await tables.schema
    .createTable('search_documents')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('source', 'text', (c) => c.notNull())
    .addColumn('id', 'text', (c) => c.notNull())
    .addColumn('part', 'bigint', (c) => c.notNull())
    .addColumn('scope', 'text', (c) => c.notNull())
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addColumn('terms', sql`tsvector`, (c) => c.notNull())
    .addPrimaryKeyConstraint('search_documents_key', ['owner', 'source', 'id', 'part'])
    .execute();
  await tables.schema
    .createIndex('search_documents_by_scope')
    .on('search_documents')
    .columns(['owner', 'scope'])
    .execute();
  await tables.schema
    .createIndex('search_documents_by_time')
    .on('search_documents')
    .columns(['owner', 'created_at'])
    .execute();
  // Without the list of pending entries, which every search would have to read.
  await sql`create index search_documents_terms on search_documents
    using gin (terms) with (fastupdate = off)`.execute(tables);
}

interface QueueTrigger {
  readonly name: string;
  readonly event: string;
  readonly row: 'new' | 'old';
  readonly source: string;
  readonly condition: string;
}

/** Triggers, because they add no statement to a turn, and miss no change. */
const TRIGGERS: readonly QueueTrigger[] = [
  {
    name: 'search_message_added',
    event: 'insert on messages',
    row: 'new',
    source: 'message',
    condition: "new.content <> ''",
  },
  {
    name: 'search_message_changed',
    event: 'update of content on messages',
    row: 'new',
    source: 'message',
    condition: 'new.content <> old.content',
  },
  {
    name: 'search_message_deleted',
    event: 'delete on messages',
    row: 'old',
    source: 'message',
    // Not if its session was deleted, which is one entry.
    condition:
      'exists (select 1 from sessions s where s.owner = old.owner and s.id = old.session_id)',
  },
  {
    name: 'search_session_added',
    event: 'insert on sessions',
    row: 'new',
    source: 'title',
    condition: "new.title <> 'Untitled'",
  },
  {
    name: 'search_session_named',
    event: 'update of title on sessions',
    row: 'new',
    source: 'title',
    condition: 'new.title <> old.title',
  },
  {
    name: 'search_session_deleted',
    event: 'delete on sessions',
    row: 'old',
    source: 'session',
    condition: 'true',
  },
];

async function createTriggers(tables: Tables): Promise<void> {
  for (const { name, event, row, source, condition } of TRIGGERS) {
    const body = `insert into search_queue (owner, source, id, version)
      select ${row}.owner, '${source}', ${row}.id, 1 where ${condition}
      on conflict (owner, source, id) do update set version = search_queue.version + 1;`;
    if (!isPostgres(tables)) {
      await sql.raw(`create trigger ${name} after ${event} begin ${body} end`).execute(tables);
      continue;
    }
    await sql
      .raw(
        `create function ${name}() returns trigger language plpgsql as $$ begin ${body} return null; end $$`,
      )
      .execute(tables);
    await sql
      .raw(`create trigger ${name} after ${event} for each row execute function ${name}()`)
      .execute(tables);
  }
}

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
