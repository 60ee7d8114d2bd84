import type { AnyTable, EraseRule } from '@sibyl/plugin-kit/tables';
import { sql } from 'kysely';
import type { Database } from '../database.js';
import { hostTables } from '../schema/index.js';

/** A table of the host or of a plugin, as the database describes it. */
export interface StoredTable {
  readonly name: string;
  readonly columns: readonly StoredColumn[];
  /** The columns of the primary key, in order. */
  readonly key: readonly string[];
  /** The column with the user's DID; undefined if the rows belong to no user. */
  readonly ownerColumn: string | undefined;
  /** The tables that its rows refer to. */
  readonly parents: readonly string[];
  readonly rules: TableRules;
}

export interface StoredColumn {
  readonly name: string;
  readonly kind: ColumnKind;
}

/** `other` values, such as search vectors, are computed and not exported. */
export type ColumnKind = 'text' | 'number' | 'bytes' | 'other';

/**
 * Reads all tables from the database itself, parents before the tables that refer to them. So tables of plugins that
 * are not loaded are included.
 */
export async function readCatalog(database: Database): Promise<readonly StoredTable[]> {
  const read = database.engine === 'postgres' ? readPostgres : readSqlite;
  const { columns, references } = await read(database);
  const pluginRules = await readPluginRules(database);
  const names = [...new Set(columns.map(({ table }) => table))];
  const tables = names.map((name): StoredTable => {
    const own = columns.filter(({ table }) => table === name);
    const rules = HOST_RULES.get(name) ?? pluginRules.get(name) ?? NO_RULES;
    const ownerColumn = rules.ownerColumn === undefined ? 'owner' : rules.ownerColumn;
    return {
      name,
      columns: own.map(({ column, type }) => ({ name: column, kind: toKind(type) })),
      key: own
        .filter(({ place }) => place > 0)
        .sort((a, b) => a.place - b.place)
        .map(({ column }) => column),
      ownerColumn: own.find(({ column }) => column === ownerColumn)?.column,
      parents: references.flatMap(({ child, parent }) => (child === name ? parent : [])),
      rules,
    };
  });
  return sortByParents(tables);
}

interface ColumnRow {
  readonly table: string;
  readonly column: string;
  readonly type: string;
  /** The position in the primary key, from 1; 0 if it is not part of it. */
  readonly place: number;
}

interface ReferenceRow {
  readonly child: string;
  readonly parent: string;
}

interface CatalogRows {
  readonly columns: readonly ColumnRow[];
  readonly references: readonly ReferenceRow[];
}

/** Without the tables of full-text indexes, which follow their content. */
async function readSqlite({ tables }: Database): Promise<CatalogRows> {
  const own = sql`select name from pragma_table_list
    where schema = 'main' and type = 'table' and name not like 'sqlite\\_%' escape '\\'`;
  const columns = await sql<ColumnRow>`select t.name as "table", c.name as "column",
      lower(c.type) as type, c.pk as place
    from (${own}) t join pragma_table_info(t.name) c order by t.name, c.cid`.execute(tables);
  const references = await sql<ReferenceRow>`select distinct t.name as child, f."table" as parent
    from (${own}) t join pragma_foreign_key_list(t.name) f`.execute(tables);
  return { columns: columns.rows, references: references.rows };
}

async function readPostgres({ tables }: Database): Promise<CatalogRows> {
  const columns = await sql<ColumnRow>`select t.relname as "table", a.attname as "column",
      format_type(a.atttypid, null) as type,
      coalesce(array_position(i.indkey::int2[], a.attnum) + 1, 0) as place
    from pg_class t
    join pg_attribute a on a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped
      and a.attgenerated = ''
    left join pg_index i on i.indrelid = t.oid and i.indisprimary
    where t.relkind in ('r', 'p') and not t.relispartition
      and t.relnamespace = current_schema()::text::regnamespace
    order by t.relname, a.attnum`.execute(tables);
  const references = await sql<ReferenceRow>`select distinct t.relname as child, p.relname as parent
    from pg_constraint c join pg_class t on t.oid = c.conrelid join pg_class p on p.oid = c.confrelid
    where c.contype = 'f' and t.relnamespace = current_schema()::text::regnamespace`.execute(
    tables,
  );
  return { columns: columns.rows, references: references.rows };
}

function toKind(type: string): ColumnKind {
  if (/^(text|character varying|varchar|uuid)/.test(type)) return 'text';
  if (/^(bigint|integer|smallint|int|real|double precision|numeric|bigserial)/.test(type))
    return 'number';
  return /^(bytea|blob)/.test(type) ? 'bytes' : 'other';
}

function sortByParents(tables: readonly StoredTable[]): readonly StoredTable[] {
  const sorted = new Map<string, StoredTable>();
  const add = (table: StoredTable, children: readonly string[]) => {
    if (sorted.has(table.name) || children.includes(table.name)) return;
    for (const parent of tables.filter(({ name }) => table.parents.includes(name)))
      add(parent, [...children, table.name]);
    sorted.set(table.name, table);
  };
  for (const table of tables) add(table, []);
  return [...sorted.values()];
}

/** Which migrations are done, of the host and of each plugin. */
export const isMigrationTable = (name: string): boolean => /_migration(_lock)?$/.test(name);

/** What the definition of a table says about the rows of a user. */
export interface TableRules {
  /** False if the rows belong to no user. */
  readonly ownerColumn?: string | false | undefined;
  readonly onErase?: EraseRule | undefined;
  /** Computed from other tables, or exported as files, and so not exported as rows. */
  readonly isDerived?: boolean | undefined;
  /** By column, why exports do not contain it: by default, a stolen export must not be able to act for the user. */
  readonly omitted: Readonly<Record<string, string>>;
  /** The encrypted columns that an export contains in plain text, and the kind each was encrypted as. */
  readonly sealed: Readonly<Record<string, string>>;
}

const NO_RULES: TableRules = { omitted: {}, sealed: {} };

function readRules({ columns, options }: AnyTable): TableRules {
  const { ownerColumn, onErase, isDerived } = options;
  const omitted: Record<string, string> = {};
  const sealed: Record<string, string> = {};
  for (const [name, { options }] of Object.entries(columns)) {
    if (options.omittedBecause !== undefined) omitted[name] = options.omittedBecause;
    if (options.sealedAs !== undefined) sealed[name] = options.sealedAs;
  }
  return { ownerColumn, onErase, isDerived, omitted, sealed };
}

const HOST_RULES: ReadonlyMap<string, TableRules> = new Map(
  hostTables.map((table) => [table.name, readRules(table)]),
);

/** In `database_info`, since the rows of a plugin that is not loaded any more follow its rules too. */
const RULES_KEY = 'table:';

/** Stores what the definitions of a plugin say, if that has changed. */
export async function keepRules(
  database: Database,
  definitions: readonly AnyTable[],
): Promise<void> {
  if (definitions.length === 0) return;
  const rows = definitions.map((table) => ({
    key: `${RULES_KEY}${table.name}`,
    value: JSON.stringify(readRules(table)),
  }));
  const known = await database.tables
    .selectFrom('database_info')
    .select(['key', 'value'])
    .where(
      'key',
      'in',
      rows.map(({ key }) => key),
    )
    .execute();
  const changed = rows.filter(
    (row) => !known.some(({ key, value }) => key === row.key && value === row.value),
  );
  if (changed.length === 0) return;
  await database.write((tables) =>
    tables
      .insertInto('database_info')
      .values(changed)
      .onConflict((c) => c.column('key').doUpdateSet((e) => ({ value: e.ref('excluded.value') })))
      .execute(),
  );
}

async function readPluginRules({ tables }: Database): Promise<ReadonlyMap<string, TableRules>> {
  const rows = await tables
    .selectFrom('database_info')
    .select(['key', 'value'])
    // Not a range of keys: the order of texts depends on the locale of PostgreSQL.
    .where('key', 'like', `${RULES_KEY}%`)
    .execute();
  return new Map(rows.map(({ key, value }) => [key.slice(RULES_KEY.length), JSON.parse(value)]));
}
