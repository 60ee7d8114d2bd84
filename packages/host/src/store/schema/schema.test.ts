import { sql } from 'kysely';
import { afterEach, describe, expect, it } from 'vitest';
import {
  createTestDatabase,
  engines,
  type TestDatabase,
} from '../../../test/support/test-database.js';
import { bundledPlugins } from '../../app/bundled-plugins.js';
import type { Database } from '../database.js';
import { openDatabase } from '../open-database.js';
import { PluginTables } from '../plugin-stores.js';
import { hostTables } from './index.js';

let test: TestDatabase;
let database: Database;

afterEach(async () => {
  await database.close();
  await test.drop();
});

interface StoredColumn {
  readonly name: string;
  readonly type: string;
  readonly isOptional: boolean;
}

async function readColumns(table: string): Promise<StoredColumn[]> {
  const { rows } =
    database.engine === 'sqlite'
      ? await sql<StoredColumn>`select name, lower(type) as type, "notnull" = 0 as "isOptional"
          from pragma_table_info(${table})`.execute(database.tables)
      : await sql<StoredColumn>`select column_name as name, data_type as type,
          is_nullable = 'YES' as "isOptional" from information_schema.columns
          where table_name = ${table} and table_schema = current_schema()
          order by ordinal_position`.execute(database.tables);
  return rows.map((column) => ({ ...column, isOptional: Boolean(column.isOptional) }));
}

async function readIndexes(table: string): Promise<readonly string[]> {
  const { rows } =
    database.engine === 'sqlite'
      ? await sql<{ name: string }>`select name from pragma_index_list(${table})`.execute(
          database.tables,
        )
      : await sql<{ name: string }>`select indexname as name from pg_indexes
          where tablename = ${table}`.execute(database.tables);
  return rows.map(({ name }) => name);
}

describe.each(engines)('the tables on %s', (engine) => {
  it('have the columns and indexes of their definitions', async () => {
    test = await createTestDatabase(engine);
    database = await openDatabase(test.options);
    const plugins = bundledPlugins.map(({ name }) => name);
    for (const { name: plugin, tables } of bundledPlugins)
      await new PluginTables(database).open({ plugin, tables, plugins });
    const definitions = [...hostTables, ...bundledPlugins.flatMap(({ tables = [] }) => tables)];
    expect(definitions.length).toBeGreaterThan(55);
    for (const { name, columns, options } of definitions) {
      const isHere = (options.engine ?? engine) === engine;
      const expected = Object.entries(columns).map(([column, { options }]) => ({
        name: column,
        type: options.type,
        isOptional: options.isOptional ?? false,
      }));
      // What a full-text index needs besides.
      const stored = (await readColumns(name)).filter(
        (column) => column.name !== options.rowId && column.name !== 'words',
      );
      const wanted = expected.filter((column) => column.name !== 'words');
      expect({ name, columns: stored }).toEqual({ name, columns: isHere ? wanted : [] });
      const indexes = isHere ? Object.keys(options.indexes ?? {}) : [];
      expect(await readIndexes(name)).toEqual(expect.arrayContaining(indexes));
    }
  });
});
