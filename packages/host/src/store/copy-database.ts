import { createHash } from 'node:crypto';
import { type Kysely, sql } from 'kysely';
import { type Database, storable } from './database.js';
import type { StoredRow, StoredValue } from './own-data/owner-rows.js';
import { isMigrationTable, readCatalog, type StoredTable } from './own-data/table-catalog.js';
import type { Schema } from './schema/index.js';
import { hostTables } from './schema/index.js';
import { copyErasures } from './shared-jobs.js';
import { StoreError } from './store-errors.js';

const ROWS_PER_PAGE = 500;
/** Of tables with files, whose rows are large. */
const FILES_PER_PAGE = 20;

/** What the target computes itself, or what is about running hosts. */
const NOT_COPIED: readonly string[] = [
  'database_info',
  'hosts',
  'socket_hosts',
  'page_calls',
  'search_queue',
  'search_documents',
];

const NO_IDLE_TIMEOUT = 'set local idle_in_transaction_session_timeout = 0';

/** Numbers of rows that one engine needs and the other does not have. */
const ENGINE_COLUMNS: ReadonlyMap<string, string | undefined> = new Map(
  hostTables.map(({ name, options }) => [name, options.rowId]),
);

/** What a table contains: equal for equal rows on both engines, in any order. */
export interface TableDigest {
  readonly table: string;
  readonly rows: number;
  readonly hash: string;
}

/**
 * Copies all rows to an empty database of either engine, and compares number and content of the rows of every table before
 * anything is committed.
 */
export async function copyDatabase(from: Database, to: Database): Promise<readonly TableDigest[]> {
  const pairs = pairTables(await readCatalog(from), await readCatalog(to));
  await assertEmpty(to, pairs);
  return from.read((source) =>
    to.write(async (target) => {
      // Each waits for the other, at the end as long as it takes to read everything again.
      if (from.engine === 'postgres') await sql.raw(NO_IDLE_TIMEOUT).execute(source);
      if (to.engine === 'postgres') await sql.raw(NO_IDLE_TIMEOUT).execute(target);
      const copied: TableDigest[] = [];
      for (const pair of pairs) copied.push(await copyTable(source, target, pair));
      await copyErasures(source, target);
      await queueForSearch(target);
      for (const [i, pair] of pairs.entries()) {
        const stored = await digestTable(target, pair.target, pair.columns);
        assertEqual(copied[i] as TableDigest, stored);
      }
      return copied;
    }),
  );
}

/** A table in both databases, and the columns that both have. */
interface TablePair {
  readonly source: StoredTable;
  readonly target: StoredTable;
  readonly columns: readonly string[];
}

const isCopied = ({ name }: StoredTable) => !isMigrationTable(name) && !NOT_COPIED.includes(name);

const listColumns = ({ name, columns }: StoredTable): readonly string[] =>
  columns
    .filter((column) => column.kind !== 'other' && ENGINE_COLUMNS.get(name) !== column.name)
    .map((column) => column.name)
    .sort();

function pairTables(
  sources: readonly StoredTable[],
  targets: readonly StoredTable[],
): readonly TablePair[] {
  return sources.filter(isCopied).map((source) => {
    const target = targets.find(({ name }) => name === source.name);
    const columns = listColumns(source);
    const known = target ? listColumns(target) : [];
    const lacking = columns.filter((name) => !known.includes(name));
    if (target && lacking.length === 0) return { source, target, columns };
    const what = target ? `the column ${lacking[0]} of ${source.name}` : `the table ${source.name}`;
    throw new StoreError(
      `The target lacks ${what}, which belongs to a plugin that does not come with the host. Start your oracle once on the empty target, so that its plugins create their tables, stop it and try again.`,
    );
  });
}

async function assertEmpty({ tables }: Database, pairs: readonly TablePair[]): Promise<void> {
  for (const { target } of pairs) {
    const { rows } = await sql`select 1 from ${sql.table(target.name)} limit 1`.execute(tables);
    if (rows.length === 0) continue;
    throw new StoreError(
      `The target is not empty: its table ${target.name} has rows. Nothing was copied; choose an empty database.`,
    );
  }
}

async function copyTable(
  source: Kysely<Schema>,
  target: Kysely<Schema>,
  pair: TablePair,
): Promise<TableDigest> {
  const digest = new RowDigest(pair.columns);
  for await (const rows of readPages(source, pair.source, pair.columns)) {
    for (const row of rows) digest.add(row);
    const values = rows.map((row) => sql`(${sql.join(pair.columns.map((name) => row[name]))})`);
    await sql`insert into ${sql.table(pair.target.name)} (${toNames(pair.columns)})
      values ${sql.join(values)}`.execute(target);
  }
  return digest.end(pair.source.name);
}

async function digestTable(
  handle: Kysely<Schema>,
  table: StoredTable,
  columns: readonly string[],
): Promise<TableDigest> {
  const digest = new RowDigest(columns);
  for await (const rows of readPages(handle, table, columns))
    for (const row of rows) digest.add(row);
  return digest.end(table.name);
}

/** All rows, in the order of their key. */
async function* readPages(
  handle: Kysely<Schema>,
  { name, key, columns: all }: StoredTable,
  columns: readonly string[],
): AsyncGenerator<readonly StoredRow[]> {
  const order = key.length > 0 ? key : columns;
  const limit = all.some(({ kind }) => kind === 'bytes') ? FILES_PER_PAGE : ROWS_PER_PAGE;
  const selected = toNames([...new Set([...columns, ...key])]);
  let read = 0;
  let after: StoredRow | undefined;
  for (;;) {
    const position = key.length > 0 ? isAfter(key, after) : sql``;
    // Equal rows of a table without a key can only be counted.
    const offset = key.length > 0 ? 0 : read;
    const { rows } = await sql<StoredRow>`select ${selected} from ${sql.table(name)}
      ${position} order by ${toNames(order)} limit ${limit} offset ${offset}`.execute(handle);
    if (rows.length > 0) yield rows;
    if (rows.length < limit) return;
    read += rows.length;
    after = rows.at(-1);
  }
}

const isAfter = (key: readonly string[], row: StoredRow | undefined) =>
  row ? sql`where (${toNames(key)}) > (${sql.join(key.map((name) => row[name]))})` : sql``;

const toNames = (columns: readonly string[]) => sql.join(columns.map((name) => sql.ref(name)));

/** The index of the target is built from its sessions. */
async function queueForSearch(target: Kysely<Schema>): Promise<void> {
  await sql`insert into search_queue (owner, source, id, version)
    select owner, 'session', id, 1 from sessions where true
    on conflict (owner, source, id) do nothing`.execute(target);
}

const SPACE = 1n << 256n;

/** The sum of the hashes of rows, since engines order texts differently. */
class RowDigest {
  private rows = 0;
  private sum = 0n;

  constructor(private readonly columns: readonly string[]) {}

  add(row: StoredRow): void {
    const values = this.columns.map((name) => toComparable(row[name] ?? null));
    const hash = createHash('sha256').update(JSON.stringify(values)).digest('hex');
    this.rows += 1;
    this.sum = (this.sum + BigInt(`0x${hash}`)) % SPACE;
  }

  end(table: string): TableDigest {
    return { table, rows: this.rows, hash: this.sum.toString(16).padStart(64, '0') };
  }
}

function toComparable(value: StoredValue): unknown {
  if (value instanceof Uint8Array)
    return { sha256: createHash('sha256').update(value).digest('hex') };
  return storable(value);
}

function assertEqual(copied: TableDigest, stored: TableDigest): void {
  if (copied.rows === stored.rows && copied.hash === stored.hash) return;
  throw new StoreError(
    `Nothing was copied: ${copied.table} has ${copied.rows} rows (${copied.hash.slice(0, 12)}), but the target would have ${stored.rows} (${stored.hash.slice(0, 12)})`,
  );
}
