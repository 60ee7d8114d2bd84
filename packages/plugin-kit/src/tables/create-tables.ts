import { type CreateTableBuilder, type Kysely, sql } from 'kysely';
import type { DatabaseEngine } from '../context.js';
import type { AnyColumn } from './columns.js';
import type { AnyTable } from './table.js';

// biome-ignore lint/suspicious/noExplicitAny: creates tables of any schema.
type Tables = Kysely<any>;

/** Creates tables in the order in which they are listed: parents before the tables that refer to them. */
export async function createTables(
  tables: Tables,
  definitions: readonly AnyTable[],
  engine: DatabaseEngine,
): Promise<void> {
  for (const definition of definitions)
    if ((definition.options.engine ?? engine) === engine)
      await createTable(tables, definition, engine);
}

async function createTable(tables: Tables, definition: AnyTable, engine: DatabaseEngine) {
  const { name, columns, options } = definition;
  let table: CreateTableBuilder<string, string> = tables.schema.createTable(name);
  for (const [column, { options }] of Object.entries(columns))
    table = addColumn(table, column, options);
  table = addKey(table, definition, engine);
  const { parent } = options;
  if (parent)
    table = table.addForeignKeyConstraint(
      `${name}_parent`,
      ['owner', parent.column],
      parent.table,
      ['owner', 'id'],
      (c) => c.onDelete('cascade'),
    );
  await table.execute();
  if (options.isUnlogged && engine === 'postgres')
    await sql`alter table ${sql.table(name)} set unlogged`.execute(tables);
  await createIndexes(tables, definition);
  for (const statement of options.statements?.[engine] ?? [])
    await sql.raw(statement).execute(tables);
}

const addColumn = (
  table: CreateTableBuilder<string, string>,
  name: string,
  { type, isOptional, defaultValue }: AnyColumn['options'],
) =>
  table.addColumn(name, sql.raw(type), (c) => {
    const column = isOptional ? c : c.notNull();
    return defaultValue === undefined ? column : column.defaultTo(defaultValue);
  });

function addKey(
  table: CreateTableBuilder<string, string>,
  { name, options: { key, rowId } }: AnyTable,
  engine: DatabaseEngine,
) {
  if (rowId === undefined || engine !== 'sqlite')
    return table.addPrimaryKeyConstraint(`${name}_key`, [...key]);
  return table
    .addColumn(rowId, 'integer', (c) => c.primaryKey())
    .addUniqueConstraint(`${name}_key`, [...key]);
}

async function createIndexes(tables: Tables, { name, options }: AnyTable): Promise<void> {
  for (const [index, { on, isUnique, where }] of Object.entries(options.indexes ?? {})) {
    let statement = tables.schema
      .createIndex(index)
      .on(name)
      .columns([...on]);
    if (isUnique) statement = statement.unique();
    if (where !== undefined) statement = statement.where(sql.raw<boolean>(where));
    await statement.execute();
  }
}
