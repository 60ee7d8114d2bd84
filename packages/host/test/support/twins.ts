import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';

/** Tables that the host and its plugins work through for all owners together. */
const SHARED_WORK =
  /^(search_queue|schedules_.*|matrix_.*|slack_inbox|a2a_.*|claims_.*|credits_(reservations|unpaid))$/;

/**
 * Gives every row of a SQLite database a twin: the same row of another owner, with the same ids. A query that forgets the
 * owner returns the twin first, and a statement that would change it fails. So each test whose data belongs to users also
 * shows that they are kept apart.
 */
export async function addTwins(dataDir: string): Promise<void> {
  const database = await openForWriting(dataDir);
  try {
    database.exec('create table if not exists twins as select 0 as is_copying, 0 as is_for_all');
    const tables = database.prepare("select name from sqlite_master where type = 'table'").all();
    for (const { name } of tables)
      if (!SHARED_WORK.test(String(name))) addTriggers(database, String(name));
    database.exec('commit');
  } finally {
    database.close();
  }
}

/** Runs what works on the rows of all users on purpose, such as deleting what has expired. */
export async function forAllUsers<T>(dataDir: string, work: () => T | Promise<T>): Promise<T> {
  if (!existsSync(join(dataDir, 'sibyl.db'))) return work();
  await setForAll(dataDir, 1);
  try {
    return await work();
  } finally {
    await setForAll(dataDir, 0);
  }
}

async function setForAll(dataDir: string, value: 0 | 1): Promise<void> {
  const database = await openForWriting(dataDir);
  try {
    if (database.prepare("select 1 from sqlite_master where name = 'twins'").get())
      database.exec(`update twins set is_for_all = ${value}`);
    database.exec('commit');
  } finally {
    database.close();
  }
}

/** Columns that no query compares: a twin has other values there, so that it does not pass for the row that was wanted. */
const CONTENT = new Set([
  ...['content', 'title', 'metadata', 'parts', 'error', 'parent', 'parent_id', 'original_id'],
  ...['active_message_id', 'previous_message_id', 'report', 'request', 'usage', 'lines', 'data'],
  ...['value', 'name', 'capabilities', 'caveats', 'ciphertext', 'rules', 'token', 'receipt'],
  ...['answer', 'comment', 'note', 'media_type', 'progress', 'oracle_name', 'error_message'],
]);

function toTwinValue(column: string): string {
  if (column === 'owner') return "'did:copy:' || new.owner";
  const value = `new."${column}"`;
  return CONTENT.has(column)
    ? `case when typeof(${value}) = 'text' then 'twin ' || ${value} else ${value} end`
    : value;
}

/** Begins a transaction. The host may be writing, in this process: a wait that blocks would never end. */
async function openForWriting(dataDir: string): Promise<DatabaseSync> {
  const database = new DatabaseSync(join(dataDir, 'sibyl.db'), { timeout: 0 });
  while (!tryBegin(database)) await sleep(5);
  return database;
}

function tryBegin(database: DatabaseSync): boolean {
  try {
    database.exec('begin immediate');
    return true;
  } catch (error) {
    if (String(error).includes('locked')) return false;
    throw error;
  }
}

function isUniqueWithoutOwner(database: DatabaseSync, table: string): boolean {
  const found = database
    .prepare(
      `select name, "unique" as is_unique, (select count(*) from pragma_index_info(i.name) where name = 'owner') as owners
       from pragma_index_list(?) as i`,
    )
    .all(table);
  return found.some(({ is_unique, owners }) => is_unique === 1 && owners === 0);
}

interface Column {
  readonly name: string;
  readonly pk: number;
}

function addTriggers(database: DatabaseSync, table: string): void {
  const found = database.prepare(`pragma table_info("${table}")`).all() as unknown as Column[];
  if (!found.some(({ name }) => name === 'owner')) return;
  // An id that is the only key is unique among all owners.
  const keys = found.filter(({ pk }) => pk > 0).map(({ name }) => name);
  if (!keys.includes('owner')) return;
  const columns = found.map(({ name }) => name);
  const values = columns.map((name) => toTwinValue(name));
  const changes = columns.map((name, at) => `"${name}" = ${values[at]}`);
  const isTwinOfOld = keys
    .map((name) => `"${name}" = ${name === 'owner' ? "'did:copy:' || " : ''}old."${name}"`)
    .join(' and ');
  const copy = (statement: string) =>
    `update twins set is_copying = 1; ${statement}; update twins set is_copying = 0;`;
  const insert = `insert or ignore into "${table}" (${columns.map((name) => `"${name}"`)}) values (${values})`;
  const isTwin = (row: 'old' | 'new') => `${row}.owner like 'did:copy:%'`;
  // Before, so that a query without the owner finds the twin first; then a row must not be unique among all owners.
  const order = isUniqueWithoutOwner(database, table) ? 'after' : 'before';
  database.exec(`
    create trigger if not exists "twin_insert_${table}" ${order} insert on "${table}" when not ${isTwin('new')}
    begin ${copy(insert)} end;
    create trigger if not exists "twin_update_${table}" after update on "${table}" when not ${isTwin('new')}
    begin ${copy(`update or ignore "${table}" set ${changes} where ${isTwinOfOld}`)} end;
    create trigger if not exists "twin_delete_${table}" after delete on "${table}" when not ${isTwin('old')}
    begin ${copy(`delete from "${table}" where ${isTwinOfOld}`)} end;
  `);
  for (const change of ['update', 'delete'])
    database.exec(`
      create trigger if not exists "twin_no_${change}_${table}" before ${change} on "${table}"
      when ${isTwin('old')} and (select is_copying + is_for_all from twins) = 0
      begin select raise(abort, 'a row of another owner in ${table} would change'); end;
    `);
}
