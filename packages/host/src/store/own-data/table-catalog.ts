import { sql } from 'kysely';
import type { Database } from '../database.js';

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
  const names = [...new Set(columns.map(({ table }) => table))];
  const tables = names.map((name): StoredTable => {
    const own = columns.filter(({ table }) => table === name);
    const ownerColumn = OWNER_COLUMNS[name] ?? 'owner';
    return {
      name,
      columns: own.map(({ column, type }) => ({ name: column, kind: toKind(type) })),
      key: own
        .filter(({ place }) => place > 0)
        .sort((a, b) => a.place - b.place)
        .map(({ column }) => column),
      ownerColumn: own.some(({ column }) => column === ownerColumn) ? ownerColumn : undefined,
      parents: references.flatMap(({ child, parent }) => (child === name ? parent : [])),
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

/** The column with the user's DID, in tables where it is not `owner`. */
const OWNER_COLUMNS: Readonly<Record<string, string>> = { callers: 'did' };

/** The tables whose rows belong to no user, and what they contain. Every other table has an owner. */
export const TABLES_WITHOUT_OWNER: Readonly<Record<string, string>> = {
  model_usage: 'Tokens per day, of all users together',
  database_info: 'Facts about the database, and the erasures that have not ended',
  hosts: 'The running hosts',
};

/** Which migrations are done, of the host and of each plugin. */
export const isMigrationTable = (name: string): boolean => /_migration(_lock)?$/.test(name);

/** What is left of a table when its user is erased. */
interface EraseException {
  readonly table: string;
  /** `rows`: they stay as they are. `without owner`: they stay, but no longer say whose they were. */
  readonly keeps: 'rows' | 'without owner';
  /** Only rows with a value in this column are kept. */
  readonly onlyWith?: string;
  readonly reason: string;
}

/** All that erasing a user does not delete. The reply to the user names those that apply. */
export const ERASE_EXCEPTIONS: readonly EraseException[] = [
  {
    table: 'claims_claims',
    keeps: 'rows',
    reason: 'Claims for payment, which the operator must keep',
  },
  {
    table: 'approvals',
    keeps: 'rows',
    onlyWith: 'receipt',
    reason: 'Receipts of signed decisions, which the operator must keep',
  },
  {
    table: 'credits_entries',
    keeps: 'without owner',
    reason: 'Payments, so that none counts twice',
  },
  {
    table: 'revocations',
    keeps: 'without owner',
    reason: 'Hashes of revoked delegations, so that these stay revoked',
  },
  {
    table: 'blocked_users',
    keeps: 'rows',
    reason: 'Users whom the operator has blocked, so that they stay blocked',
  },
  {
    table: 'operator_actions',
    keeps: 'rows',
    reason: 'What operators did, which must stay accountable',
  },
  {
    table: 'single_use',
    keeps: 'without owner',
    reason: 'Hashes of used invocations and invitations, so that these stay used until they expire',
  },
];

/** What is computed from other tables, or exported as files, and so is not exported as rows. */
export const DERIVED_TABLES: readonly string[] = [
  'search_queue',
  'search_documents',
  'file_chunks',
  'file_passages',
  'file_vectors',
  'memory_vectors',
];

/** By default credentials: a stolen export must not be able to act for the user. */
export const OMITTED_COLUMNS: readonly {
  readonly table: string;
  readonly column: string;
  readonly reason?: string;
}[] = [
  { table: 'delegations', column: 'ciphertext' },
  { table: 'secrets', column: 'ciphertext' },
  { table: 'runs', column: 'request' },
  { table: 'file_chunks', column: 'data', reason: 'the files are in uploads, as a whole' },
];

/** The encrypted columns that an export contains in plain text, and the kind each was encrypted as. */
export const SEALED_COLUMNS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  run_steps: { data: 'step' },
  interrupts: { data: 'interrupt', answer: 'answer' },
  approvals: { request: 'approval', answer: 'answer', receipt: 'receipt' },
  rules: { token: 'rules' },
};
