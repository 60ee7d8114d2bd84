import { readFileSync } from 'node:fs';
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { bundledVariables } from '../../../test/support/bundled-variables.js';
import { startHost, type TestHost } from '../../../test/support/host.js';
import { createTestDatabase, type TestDatabase } from '../../../test/support/test-database.js';

let database: TestDatabase;
let host: TestHost;
let client: pg.Client;

beforeAll(async () => {
  database = await createTestDatabase('postgres');
  const plugins = Object.assign({}, ...Object.values(bundledVariables));
  host = await startHost({ env: { ...plugins, ...database.env } });
  client = new pg.Client({ connectionString: database.options.databaseUrl });
  await client.connect();
});

afterAll(async () => {
  await client.end();
  await host.close();
  await database.drop();
});

/** The tables with a key or unique index that does not begin with the owner, or without any key. */
async function findUndistributable(): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(`
    select distinct t.relname as name
    from pg_class t
    left join pg_index i on i.indrelid = t.oid and i.indisunique
    left join pg_attribute a on a.attrelid = t.oid and a.attnum = i.indkey[0]
    where t.relkind in ('r', 'p') and t.relnamespace = 'public'::regnamespace
      and a.attname is distinct from 'owner'
    order by name`);
  return rows.map(({ name }) => name);
}

/** The exceptions that the documentation lists. */
function readExceptions(): string[] {
  const [, section = ''] = readFileSync('docs/deploying.md', 'utf8').split(
    '## One user on one server',
  );
  const rows = section.split('\n## ')[0]?.match(/^\| `[^|]*\|/gm) ?? [];
  return rows.flatMap((row) => [...row.matchAll(/`(\w+)`/g)].map(([, name]) => name ?? ''));
}

const isMigrationTable = (name: string) => /_migration(_lock)?$/.test(name);

it('every key of every table on PostgreSQL begins with the owner, except in the tables of docs/deploying.md', async () => {
  const listed = readExceptions();
  const found = await findUndistributable();
  expect(found.filter((name) => !isMigrationTable(name) && !listed.includes(name))).toEqual([]);
  const { rows } = await client.query("select 1 from pg_class where relname = 'slack_inbox'");
  expect(rows).toHaveLength(1);
});

it('docs/deploying.md lists no table whose keys begin with the owner', async () => {
  const found = await findUndistributable();
  const { rows } = await client.query<{ name: string }>(
    "select relname as name from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace",
  );
  const existing = rows.map(({ name }) => name);
  expect(
    readExceptions().filter((name) => existing.includes(name) && !found.includes(name)),
  ).toEqual([]);
});

it('the catalog of PostgreSQL shows a table that cannot be distributed', async () => {
  await client.query('create table undistributable (id text primary key, owner text not null)');
  await client.query('create table keyless (owner text not null)');
  const found = await findUndistributable();
  await client.query('drop table undistributable, keyless');
  expect(found).toContain('undistributable');
  expect(found).toContain('keyless');
});

it('every table of a user on PostgreSQL refers only to tables with the same owner', async () => {
  const { rows } = await client.query<{ name: string }>(`
    select conname as name from pg_constraint c
    join pg_attribute a on a.attrelid = c.conrelid and a.attnum = c.conkey[1]
    join pg_attribute b on b.attrelid = c.confrelid and b.attnum = c.confkey[1]
    where c.contype = 'f' and (a.attname <> 'owner' or b.attname <> 'owner')`);
  expect(rows).toEqual([]);
});
