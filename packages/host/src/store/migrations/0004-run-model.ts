import {
  type CreateTableBuilder,
  type Kysely,
  PostgresAdapter,
  type RawBuilder,
  sql,
} from 'kysely';
import type { Migration } from 'kysely/migration';

// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
type Tables = Kysely<any>;

/**
 * Rebuilds the tables of users with keys that begin with the owner, so that they can be distributed by owner; adds
 * attempts, steps and interrupts of runs, ordered parts and parents of messages, and purposes of delegations.
 */
export const runModel: Migration = {
  async up(tables: Tables) {
    for (const table of REBUILT)
      await tables.schema.alterTable(table).renameTo(`old_${table}`).execute();
    await createSessions(tables);
    await createMessages(tables);
    await createRuns(tables);
    await createRunDetails(tables);
    await createPluginStores(tables);
    await createDelegations(tables);
    await createSocketTables(tables);
    await createTable(tables, 'database_info', {
      columns: { key: 'text', value: 'text' },
      key: ['key'],
    });
    await copyRows(tables);
    await convertParts(tables);
    // Children first: dropping a table deletes the rows that refer to it.
    for (const table of REBUILT.toReversed())
      await tables.schema.dropTable(`old_${table}`).execute();
    await createUniqueIndexes(tables);
    await createIndexes(tables);
  },
};

/** Parents before the tables that refer to them. */
const REBUILT = [
  'sessions',
  'rooms',
  'messages',
  'runs',
  'run_frames',
  'session_state',
  'blobs',
  'delegations',
] as const;

/** A question mark marks a column that may be null. */
type ColumnType = `${'text' | 'bigint' | 'integer' | 'bytea'}${'' | '?' | ` default ${string}`}`;

interface TableShape {
  readonly columns: Readonly<Record<string, ColumnType>>;
  readonly key: readonly string[];
  /** The table whose rows these belong to, and the column with its id. */
  readonly parent?: { readonly table: string; readonly column: string };
}

/** Creates a table without indexes, whose names belong to the old tables until those are dropped. */
async function createTable(
  tables: Tables,
  name: string,
  { columns, key, parent }: TableShape,
): Promise<void> {
  let table: CreateTableBuilder<string, string> = tables.schema.createTable(name);
  for (const [column, type] of Object.entries(columns))
    table = table.addColumn(column, sql.raw(type.replace('?', '')), (c) =>
      type.endsWith('?') ? c : c.notNull(),
    );
  table = table.addPrimaryKeyConstraint(`${name}_key`, [...key]);
  if (parent)
    table = table.addForeignKeyConstraint(
      `${name}_parent`,
      ['owner', parent.column],
      parent.table,
      ['owner', 'id'],
      (c) => c.onDelete('cascade'),
    );
  await table.execute();
}

const inSession = { column: 'session_id', table: 'sessions' };
const inRun = { column: 'run_id', table: 'runs' };

const SESSION_COLUMNS = {
  owner: 'text',
  id: 'text',
  title: 'text',
  created_at: 'bigint',
  last_updated_at: 'bigint',
  oracle_did: 'text',
  oracle_name: 'text?',
  oracle_entity_did: 'text?',
  room_id: 'text',
  last_seq: 'bigint',
  last_turn: 'bigint',
} as const;

const ROOM_COLUMNS = {
  owner: 'text',
  id: 'text',
  oracle_did: 'text',
  created_at: 'bigint',
} as const;

async function createSessions(tables: Tables): Promise<void> {
  await createTable(tables, 'sessions', { columns: SESSION_COLUMNS, key: ['owner', 'id'] });
  await createTable(tables, 'rooms', { columns: ROOM_COLUMNS, key: ['owner', 'id'] });
}

const MESSAGE_COLUMNS = {
  owner: 'text',
  id: 'text',
  session_id: 'text',
  turn: 'bigint',
  seq: 'bigint',
  type: 'text',
  content: 'text',
  metadata: 'text?',
  request_id: 'text',
  run_id: 'text?',
  is_complete: 'integer',
  created_at: 'bigint',
} as const;

async function createMessages(tables: Tables): Promise<void> {
  const added = { parent: 'text?', parts: 'text?', error: 'text?' } as const;
  const columns = { ...MESSAGE_COLUMNS, ...added };
  await createTable(tables, 'messages', { columns, key: ['owner', 'id'], parent: inSession });
  const ids = { owner: 'text', session_id: 'text', client_id: 'text', message_id: 'text' } as const;
  const key = ['owner', 'session_id', 'client_id'];
  await createTable(tables, 'client_ids', { columns: ids, key, parent: inSession });
}

const RUN_COLUMNS = {
  owner: 'text',
  id: 'text',
  session_id: 'text',
  turn: 'bigint',
  request_id: 'text',
  host_id: 'text?',
  message_id: 'text?',
  error_kind: 'text?',
  error_message: 'text?',
  report: 'text?',
  last_seq: 'bigint',
  input_tokens: 'bigint',
  output_tokens: 'bigint',
  cached_tokens: 'bigint',
  started_at: 'bigint?',
  updated_at: 'bigint',
} as const;

async function createRuns(tables: Tables): Promise<void> {
  const added = {
    attempt: 'bigint',
    status: 'text',
    abort_requested: 'text?',
    request: 'text?',
    created_at: 'bigint',
  } as const;
  await createTable(tables, 'runs', {
    columns: { ...RUN_COLUMNS, ...added },
    key: ['owner', 'id'],
    parent: inSession,
  });
}

const FRAME_COLUMNS = {
  owner: 'text',
  run_id: 'text',
  seq: 'bigint',
  event: 'text',
  data: 'text',
} as const;

async function createRunDetails(tables: Tables): Promise<void> {
  await createTable(tables, 'frames', {
    columns: FRAME_COLUMNS,
    key: ['owner', 'run_id', 'seq'],
    parent: inRun,
  });
  const step = {
    owner: 'text',
    run_id: 'text',
    step: 'bigint',
    data: 'text',
    created_at: 'bigint',
  } as const;
  await createTable(tables, 'run_steps', {
    columns: step,
    key: ['owner', 'run_id', 'step'],
    parent: inRun,
  });
  const interrupt = {
    owner: 'text',
    id: 'text',
    session_id: 'text',
    run_id: 'text',
    turn: 'bigint',
    call_id: 'text',
    path: 'text',
    kind: 'text',
    schema: 'text',
    data: 'text?',
    status: 'text',
    expires_at: 'bigint',
    answer: 'text?',
    answered_at: 'bigint?',
    next_run_id: 'text?',
    created_at: 'bigint',
  } as const;
  await createTable(tables, 'interrupts', {
    columns: interrupt,
    key: ['owner', 'id'],
    parent: inRun,
  });
}

const STATE_COLUMNS = {
  owner: 'text',
  session_id: 'text',
  plugin: 'text',
  key: 'text',
  value: 'text',
} as const;

const BLOB_COLUMNS = {
  owner: 'text',
  id: 'text',
  plugin: 'text',
  media_type: 'text',
  size: 'bigint',
  // SQLite keeps bytes as they are in a column of any type.
  data: 'bytea',
  created_at: 'bigint',
} as const;

async function createPluginStores(tables: Tables): Promise<void> {
  const key = ['owner', 'session_id', 'plugin', 'key'];
  await createTable(tables, 'session_state', { columns: STATE_COLUMNS, key, parent: inSession });
  await createTable(tables, 'blobs', { columns: BLOB_COLUMNS, key: ['owner', 'id'] });
}

const DELEGATION_COLUMNS = {
  owner: 'text',
  cid: 'text',
  audience: 'text',
  capabilities: 'text?',
  ciphertext: 'text?',
  expires_at: 'bigint?',
  created_at: 'bigint',
  stored_at: 'bigint?',
  last_used_at: 'bigint?',
} as const;

async function createDelegations(tables: Tables): Promise<void> {
  const columns = { ...DELEGATION_COLUMNS, purpose: "text default 'services'" } as const;
  await createTable(tables, 'delegations', { columns, key: ['owner', 'cid', 'purpose'] });
}

async function copyRows(tables: Tables): Promise<void> {
  const copy = (
    [from, to]: readonly [from: string, to: string],
    columns: object,
    added: Readonly<Record<string, RawBuilder<unknown>>> = {},
  ) => {
    const names = Object.keys(columns).map((name) => sql.ref(name));
    const newNames = Object.keys(added).map((name) => sql.ref(name));
    return sql`insert into ${sql.table(to)} (${sql.join([...names, ...newNames])})
      select ${sql.join([...names, ...Object.values(added)])} from ${sql.table(from)}`.execute(
      tables,
    );
  };
  await copy(['old_sessions', 'sessions'], SESSION_COLUMNS);
  await copy(['old_rooms', 'rooms'], ROOM_COLUMNS);
  await copy(['old_messages', 'messages'], MESSAGE_COLUMNS, { parent: PARENT });
  await copy(['old_runs', 'runs'], RUN_COLUMNS, {
    attempt: sql.lit(1),
    status: STATUS,
    created_at: sql.ref('started_at'),
  });
  await copy(['old_run_frames', 'frames'], FRAME_COLUMNS);
  await copy(['old_session_state', 'session_state'], STATE_COLUMNS);
  await copy(['old_blobs', 'blobs'], BLOB_COLUMNS);
  await copy(['old_delegations', 'delegations'], DELEGATION_COLUMNS, {
    purpose: sql.lit('services'),
  });
}

/** The question of an answer; the last message of the previous turn for a question. */
const PARENT = sql`case
  when first_value(id) over (partition by owner, session_id, turn order by seq) = id
  then lag(id) over (partition by owner, session_id order by turn, seq)
  else first_value(id) over (partition by owner, session_id, turn order by seq) end`;

/** Two hosts may have run turns of one session at the same time; from now on that is impossible. */
const STATUS = sql`case
  when status = 'running' and exists (
    select 1 from old_runs as earlier
    where earlier.session_id = old_runs.session_id
    and earlier.status = 'running' and earlier.turn < old_runs.turn)
  then 'queued' else status end`;

async function createUniqueIndexes(tables: Tables): Promise<void> {
  const create = (name: string, table: string, columns: readonly string[]) =>
    tables.schema
      .createIndex(name)
      .unique()
      .on(table)
      .columns([...columns]);
  await create('rooms_one_per_oracle', 'rooms', ['owner', 'oracle_did']).execute();
  await create('messages_in_order', 'messages', ['owner', 'session_id', 'turn', 'seq']).execute();
  await create('runs_in_order', 'runs', ['owner', 'session_id', 'turn', 'attempt']).execute();
  await create('runs_active', 'runs', ['owner', 'session_id'])
    .where(sql<boolean>`status in ('running', 'paused')`)
    .execute();
}

async function createIndexes(tables: Tables): Promise<void> {
  const create = (name: string, table: string, columns: readonly string[]) =>
    tables.schema
      .createIndex(name)
      .on(table)
      .columns([...columns]);
  // Read backwards it is the order of the session list, so that list needs no sort.
  await create('sessions_by_update', 'sessions', ['owner', 'last_updated_at', 'id']).execute();
  await create('runs_open_by_owner', 'runs', ['owner'])
    .where(sql<boolean>`status in ('queued', 'running', 'paused')`)
    .execute();
  await create('runs_by_host', 'runs', ['host_id'])
    .where(sql<boolean>`status in ('queued', 'running')`)
    .execute();
  await create('runs_by_status', 'runs', ['status', 'updated_at']).execute();
  await create('interrupts_by_run', 'interrupts', ['owner', 'run_id']).execute();
  const inTurn = ['owner', 'session_id', 'turn', 'created_at', 'id'];
  await create('interrupts_by_turn', 'interrupts', inTurn).execute();
  await create('interrupts_open', 'interrupts', ['owner', 'session_id'])
    .where(sql<boolean>`status = 'open'`)
    .execute();
  await create('interrupts_by_expiry', 'interrupts', ['expires_at'])
    .where(sql<boolean>`status = 'open'`)
    .execute();
  await create('blobs_by_owner', 'blobs', ['owner', 'plugin', 'size']).execute();
  await create('delegations_current', 'delegations', ['owner', 'purpose', 'audience', 'stored_at'])
    .where(sql<boolean>`ciphertext is not null`)
    .execute();
  await create('delegations_by_expiry', 'delegations', ['expires_at']).execute();
}

/** Few, because a message may contain megabytes. */
const ROWS_PER_BATCH = 50;

/** Converts the tool calls, reasoning and attachments of `old_messages` to the parts of `messages`. */
async function convertParts(tables: Tables): Promise<void> {
  let after = '';
  for (;;) {
    const rows = await selectRows(tables, after).execute();
    for (const row of rows) {
      await tables
        .updateTable('messages')
        .set({ parts: JSON.stringify(buildParts(row as OldMessage)) })
        .where('owner', '=', row.owner)
        .where('id', '=', row.id)
        .execute();
    }
    if (rows.length < ROWS_PER_BATCH) return;
    after = rows.at(-1)?.id;
  }
}

function selectRows(tables: Tables, after: string) {
  return tables
    .selectFrom('old_messages')
    .select(['owner', 'id', 'type', 'content', 'tool_calls', 'reasoning', 'attachments'])
    .where('id', '>', after)
    .where((e) =>
      e.or([
        e('tool_calls', 'is not', null),
        e('reasoning', 'is not', null),
        e('attachments', 'is not', null),
      ]),
    )
    .orderBy('id')
    .limit(ROWS_PER_BATCH);
}

interface OldMessage {
  readonly content: string;
  readonly tool_calls: string | null;
  readonly reasoning: string | null;
  readonly attachments: string | null;
}

/** In the order that is most likely: the old columns do not show it. */
function buildParts({ content, tool_calls, reasoning, attachments }: OldMessage): object[] {
  const calls: unknown[] = JSON.parse(tool_calls ?? '[]');
  const files: unknown[] = JSON.parse(attachments ?? '[]');
  return [
    ...(reasoning ? [{ type: 'reasoning', text: reasoning }] : []),
    ...calls.map((call) => ({ type: 'tool-call', call })),
    ...(content ? [{ type: 'text', text: content }] : []),
    ...files.map((file) => ({ type: 'file', file })),
  ];
}

/** Creates the tables of sockets and of open calls to pages, which only hosts that share a database use. */
// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
async function createSocketTables(tables: Kysely<any>): Promise<void> {
  await tables.schema
    .createTable('socket_hosts')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('host_id', 'text', (c) => c.notNull())
    .addColumn('sockets', 'integer', (c) => c.notNull())
    .addPrimaryKeyConstraint('socket_hosts_key', ['owner', 'session_id', 'host_id'])
    .execute();
  await tables.schema
    .createTable('page_calls')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('call_id', 'text', (c) => c.notNull())
    .addColumn('host_id', 'text', (c) => c.notNull())
    .addColumn('call', 'text')
    .addColumn('delivered_by', 'text')
    .addColumn('answer', 'text')
    .addPrimaryKeyConstraint('page_calls_key', ['owner', 'session_id', 'call_id'])
    .execute();
  for (const table of ['socket_hosts', 'page_calls']) {
    await tables.schema.createIndex(`${table}_by_host`).on(table).column('host_id').execute();
    // Their rows end with the sockets, so they need not survive a crash of the server.
    if (tables.getExecutor().adapter instanceof PostgresAdapter)
      await sql`alter table ${sql.table(table)} set unlogged`.execute(tables);
  }
}

/** A row holds consecutive frames, one per line, and the number of the last one. Rows with one frame stay valid. */
export const frameChunks: Migration = {
  async up(tables: Tables) {
    await sql`update frames set data = event || ' ' || data`.execute(tables);
    await tables.schema.alterTable('frames').dropColumn('event').execute();
    await tables.schema.alterTable('frames').renameColumn('data', 'lines').execute();
  },
};
