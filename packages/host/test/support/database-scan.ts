import { randomInt, randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type { Database } from '../../src/store/database.js';
import { readCatalog, type StoredTable } from '../../src/store/own-data/table-catalog.js';

/** The tables and columns whose values contain a text, in the whole database. */
export async function findText(database: Database, text: string): Promise<string[]> {
  const found: string[] = [];
  for (const table of await readCatalog(database))
    for (const { name, kind } of table.columns) {
      const value =
        kind === 'bytes' && database.engine === 'postgres'
          ? sql`encode(${sql.ref(name)}, 'escape')`
          : sql`cast(${sql.ref(name)} as text)`;
      const { rows } = await sql`select 1 from ${sql.table(table.name)}
        where ${value} like ${`%${text}%`} limit 1`.execute(database.tables);
      if (rows.length > 0) found.push(`${table.name}.${name}`);
    }
  return found;
}

/** A time in 2096, so that the running host neither deletes a row as old nor acts on it as due. */
const LATER = 4_000_000_000_000;

/**
 * Adds a row of a user to every table that has none yet; rows refer to each other by the same id. The user is not blocked:
 * the host would refuse the next request.
 */
export async function fillTables(database: Database, owner: string): Promise<string[]> {
  const filled: string[] = [];
  const values = { owner, id: randomUUID(), number: randomInt(1_000_000_000) };
  for (const table of await readCatalog(database)) {
    if (table.ownerColumn === undefined || table.name === 'blocked_users') continue;
    const row = createRow({ ...table, ownerColumn: table.ownerColumn }, values);
    const columns = sql.join(Object.keys(row).map((name) => sql.ref(name)));
    await database.write((tables) =>
      sql`insert into ${sql.table(table.name)} (${columns})
        values (${sql.join(Object.values(row))}) on conflict do nothing`.execute(tables),
    );
    filled.push(table.name);
  }
  return filled;
}

interface Filling {
  readonly owner: string;
  readonly id: string;
  readonly number: number;
}

function createRow(
  { columns, ownerColumn }: StoredTable & { ownerColumn: string },
  { owner, id, number }: Filling,
) {
  const values = columns.flatMap(({ name, kind }) => {
    if (name === ownerColumn) return [[name, owner]];
    const value = { text: id, number, bytes: Buffer.from(id), other: '' }[kind];
    return [[name, kind === 'number' && name.endsWith('_at') ? LATER + number : value]];
  });
  return Object.fromEntries(values) as Record<string, unknown>;
}
