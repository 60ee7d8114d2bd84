import { sql } from 'kysely';
import type { Database } from '../../src/store/database.js';
import type { FileKey } from '../../src/store/file-store.js';
import type { StoredRow } from '../../src/store/own-data/owner-rows.js';
import type { Store } from '../../src/store/store.js';
import { newOwner } from './test-database.js';

/** The rows of a user in a table. */
export async function readRows(
  { ownerRows }: Pick<Store, 'ownerRows'>,
  name: string,
  owner: string,
): Promise<StoredRow[]> {
  const table = (await ownerRows.tables()).find((each) => each.name === name);
  if (!table) throw new Error(`no table ${name}`);
  const rows: StoredRow[] = [];
  for await (const page of ownerRows.pages(table, owner)) rows.push(...page);
  return rows;
}

/** A file of another user with the same id, which is as much read as the first one. */
export async function copyFile(
  store: Pick<Store, 'ownerRows' | 'imports'>,
  { owner, fileId }: FileKey,
): Promise<FileKey> {
  const copy = { owner: newOwner(), fileId };
  const rows = await readRows(store, 'files', owner);
  await store.imports.insert(
    copy.owner,
    'files',
    rows.filter(({ id }) => id === fileId),
  );
  return copy;
}

/** Inserts rows as they are. */
export async function insertRows(
  database: Database,
  table: string,
  ...rows: readonly StoredRow[]
): Promise<void> {
  await database.write(async (tables) => {
    for (const row of rows) {
      const columns = Object.keys(row);
      await sql`insert into ${sql.table(table)} (${sql.join(columns.map((name) => sql.ref(name)))})
        values (${sql.join(columns.map((name) => row[name]))})`.execute(tables);
    }
  });
}
