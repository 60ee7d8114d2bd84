import { type Kysely, PostgresAdapter, sql } from 'kysely';

/** Creates the tables of sockets and of open calls to pages, which only hosts that share a database use. */
// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
export async function createSocketTables(tables: Kysely<any>): Promise<void> {
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
