import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';

/** Tables that the host and its plugins work through for all owners together. */
const SHARED_WORK = /^(search_queue|schedules_.*|matrix_.*|a2a_.*)$/;

/**
 * Gives every row of a SQLite database a twin: the same row of another owner, with the same ids. A query that forgets the
 * owner returns the twin, too, and a statement that would change it fails. So each test whose data belongs to users also
 * shows that they are kept apart.
 */
export async function addTwins(dataDir: string): Promise<void> {
  const database = new DatabaseSync(join(dataDir, 'sibyl.db'), { timeout: 0 });
  try {
    // The host may be writing, in this process: a wait that blocks would never end.
    while (!tryBegin(database)) await sleep(5);
    database.exec('create table if not exists twins as select 0 as is_copying');
    const tables = database.prepare("select name from sqlite_master where type = 'table'").all();
    for (const { name } of tables)
      if (!SHARED_WORK.test(String(name))) addTriggers(database, String(name));
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
  if (column === 'owner') return "'did:twin:' || new.owner";
  const value = `new."${column}"`;
  return CONTENT.has(column)
    ? `case when typeof(${value}) = 'text' then 'twin ' || ${value} else ${value} end`
    : value;
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
    .map((name) => `"${name}" = ${name === 'owner' ? "'did:twin:' || " : ''}old."${name}"`)
    .join(' and ');
  const copy = (statement: string) =>
    `update twins set is_copying = 1; ${statement}; update twins set is_copying = 0;`;
  const insert = `insert or ignore into "${table}" (${columns.map((name) => `"${name}"`)}) values (${values})`;
  const isTwin = (row: 'old' | 'new') => `${row}.owner like 'did:twin:%'`;
  database.exec(`
    create trigger if not exists "twin_insert_${table}" after insert on "${table}" when not ${isTwin('new')}
    begin ${copy(insert)} end;
    create trigger if not exists "twin_update_${table}" after update on "${table}" when not ${isTwin('new')}
    begin ${copy(`update or ignore "${table}" set ${changes} where ${isTwinOfOld}`)} end;
    create trigger if not exists "twin_delete_${table}" after delete on "${table}" when not ${isTwin('old')}
    begin ${copy(`delete from "${table}" where ${isTwinOfOld}`)} end;
  `);
  for (const change of ['update', 'delete'])
    database.exec(`
      create trigger if not exists "twin_no_${change}_${table}" before ${change} on "${table}"
      when ${isTwin('old')} and (select is_copying from twins) = 0
      begin select raise(abort, 'a row of another owner in ${table} would change'); end;
    `);
}
