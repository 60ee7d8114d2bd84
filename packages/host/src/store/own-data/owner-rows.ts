import { setTimeout as sleep } from 'node:timers/promises';
import type { EraseRule } from '@sibyl/plugin-kit/tables';
import { type Kysely, type RawBuilder, sql } from 'kysely';
import type { StoreContext } from '../database.js';
import type { Vault } from '../encryption.js';
import type { Schema } from '../schema/index.js';
import { type ErasureRequest, isRequested } from '../shared-jobs.js';
import { readCatalog, type StoredTable } from './table-catalog.js';

/** Rows that one statement deletes: other users must not wait long. */
const ROWS_PER_DELETE = 500;
/** Of tables with files. */
const FILES_PER_DELETE = 20;
/** What is written while a user is being erased, such as the last charge of a turn, is deleted by another pass. */
const PASSES = 10;
const PAUSE_MS = 100;

/** How much of an export is in memory at a time, unless one value is larger. */
const PAGE_BYTES = 512 * 1024;
const PAGE_ROWS = 500;

export type StoredValue = string | number | null | Uint8Array;
export type StoredRow = Readonly<Record<string, StoredValue>>;

/** What remains of an erased user in one table. */
interface KeptRows extends Pick<EraseRule, 'keeps' | 'reason'> {
  readonly table: string;
  readonly rows: number;
}

/** All rows of a user, in every table of the host and of plugins, loaded or not. */
export class OwnerRows {
  constructor(
    private readonly context: StoreContext,
    private readonly vault: Vault,
  ) {}

  /** The tables that can contain rows of a user, parents before the tables that refer to them. */
  async tables(): Promise<readonly OwnedTable[]> {
    return (await readCatalog(this.context.database)).filter(isOwned);
  }

  /**
   * Deletes all rows of a user, except those that outlive an erasure by the definition of their table; nothing once the request has ended: a host that was
   * frozen must not delete what the user has stored since then.
   */
  async erase(
    owner: string,
    pseudonym: string,
    request?: ErasureRequest,
  ): Promise<{ rows: number; kept: KeptRows[] }> {
    const tables = (await this.tables()).toReversed();
    let rows = 0;
    for (let pass = 0, found = 1; found > 0; pass++) {
      if (pass === PASSES)
        throw new Error('Rows of an erased user are written faster than they are deleted');
      if (pass > 0) await sleep(PAUSE_MS);
      found = 0;
      for (const table of tables)
        found += await this.eraseTable(table, { owner, request }, pseudonym);
      rows += found;
    }
    return { rows, kept: await this.countKept(tables, [owner, pseudonym]) };
  }

  /** Whether there is anything of a user, except for what each request to erase leaves. */
  async hasAny(owner: string): Promise<boolean> {
    for (const { name, ownerColumn } of await this.tables()) {
      if (name === 'single_use') continue;
      const { rows } = await sql`select 1 from ${sql.table(name)}
        where ${sql.ref(ownerColumn)} = ${owner} limit 1`.execute(this.context.database.tables);
      if (rows.length > 0) return true;
    }
    return false;
  }

  /** Everyone who has rows. */
  async owners(): Promise<ReadonlySet<string>> {
    const owners = new Set<string>();
    for (const { name, ownerColumn } of await this.tables()) {
      const { rows } = await sql<{ owner: string }>`select distinct ${sql.ref(ownerColumn)} as owner
        from ${sql.table(name)}`.execute(this.context.database.tables);
      for (const { owner } of rows) owners.add(owner);
    }
    return owners;
  }

  /** The rows of a user in a table, in pages of about the same size, without binary columns. */
  async *pages(table: OwnedTable, owner: string): AsyncGenerator<readonly StoredRow[]> {
    const columns = table.columns
      .filter(({ name, kind }) => isReadable(kind) && !(name in table.rules.omitted))
      .map(({ name }) => name);
    for await (const page of this.read(table, owner, columns))
      yield page.map((row) => this.unseal(table, owner, row));
  }

  /** The values of a binary column with the keys of their rows, one at a time. */
  async *files(
    table: OwnedTable,
    owner: string,
    column: string,
  ): AsyncGenerator<{ readonly key: StoredRow; readonly data: Uint8Array }> {
    for await (const page of this.read(table, owner, [...table.key, column]))
      for (const { [column]: data, ...key } of page)
        if (data instanceof Uint8Array) yield { key, data };
  }

  private async *read(
    table: OwnedTable,
    owner: string,
    columns: readonly string[],
  ): AsyncGenerator<readonly StoredRow[]> {
    const order = table.key.filter((name) => name !== table.ownerColumn);
    const selected = [...new Set([...columns, ...order])];
    let page: Position = { table, owner, order };
    for (;;) {
      // Sizes first: the next page may be a thousand times as large as this one.
      const limit = countFitting(await this.measure({ ...page, columns }));
      if (limit === 0) return;
      const rows = await selectPage(this.context.database.tables, { ...page, selected, limit });
      yield rows;
      const after = rows.at(-1);
      if (!after) return;
      if (order.length > 0) page = { ...page, after };
      else page = { ...page, offset: (page.offset ?? 0) + rows.length };
    }
  }

  /** The sizes of the next rows in bytes. */
  private async measure({
    columns,
    ...page
  }: Position & { readonly columns: readonly string[] }): Promise<readonly number[]> {
    const large = page.table.columns.filter(
      ({ name, kind }) => kind !== 'number' && columns.includes(name),
    );
    const sizes = large.map(({ name }) => sql`coalesce(octet_length(${sql.ref(name)}), 0)`);
    const bytes = sql`${sql.join([sql.lit(0), ...sizes], sql` + `)} as bytes`;
    const { rows } = await sql<{ bytes: number }>`select ${bytes} ${fromPage(page)}
      limit ${PAGE_ROWS} offset ${page.offset ?? 0}`.execute(this.context.database.tables);
    return rows.map((row) => Number(row.bytes));
  }

  private unseal({ rules: { sealed } }: OwnedTable, owner: string, row: StoredRow): StoredRow {
    const values = Object.entries(row).map(([column, value]) => {
      const kind = sealed[column];
      if (kind === undefined || typeof value !== 'string') return [column, value];
      const opened = this.vault.open(value, [kind, owner]);
      return [column, 'ok' in opened ? opened.ok : null];
    });
    return Object.fromEntries(values);
  }

  private async eraseTable(
    table: OwnedTable,
    erased: Pick<Some, 'owner' | 'request'>,
    pseudonym: string,
  ): Promise<number> {
    const exception = table.rules.onErase;
    if (exception?.keeps === 'rows' && exception.onlyWith === undefined) return 0;
    const hasFiles = table.columns.some(({ kind }) => kind === 'bytes');
    const limit = hasFiles ? FILES_PER_DELETE : ROWS_PER_DELETE;
    let total = 0;
    for (let changed = limit; changed > 0; total += changed)
      changed = await this.context.database.write((tables) =>
        exception?.keeps === 'without owner'
          ? renameOwner(tables, table, { ...erased, limit, pseudonym })
          : deleteSome(tables, table, { ...erased, limit, unless: exception?.onlyWith }),
      );
    return total;
  }

  private async countKept(
    tables: readonly OwnedTable[],
    owners: readonly string[],
  ): Promise<KeptRows[]> {
    const kept: KeptRows[] = [];
    for (const table of tables) {
      const rule = table.rules.onErase;
      if (!rule) continue;
      const { rows } = await sql<{ rows: number }>`select count(*) as rows
        from ${sql.table(table.name)} where ${sql.ref(table.ownerColumn)} in (${sql.join(owners)})`.execute(
        this.context.database.tables,
      );
      const count = Number(rows[0]?.rows ?? 0);
      const { keeps, reason } = rule;
      if (count > 0) kept.push({ table: table.name, rows: count, keeps, reason });
    }
    return kept;
  }
}

export type OwnedTable = StoredTable & { readonly ownerColumn: string };

const isOwned = (table: StoredTable): table is OwnedTable => table.ownerColumn !== undefined;

const isReadable = (kind: string) => kind === 'text' || kind === 'number';

/** How many rows fit into a page: at least one, if there is one. */
function countFitting(sizes: readonly number[]): number {
  let total = 0;
  const end = sizes.findIndex((bytes) => {
    total += bytes;
    return total > PAGE_BYTES;
  });
  return end < 0 ? sizes.length : Math.max(1, end);
}

interface Position {
  readonly table: OwnedTable;
  readonly owner: string;
  readonly order: readonly string[];
  readonly after?: StoredRow | undefined;
  /** Rows before it, in a table without a key that orders them. */
  readonly offset?: number | undefined;
}

async function selectPage(
  tables: Kysely<Schema>,
  { selected, limit, ...page }: Position & { selected: readonly string[]; limit: number },
): Promise<readonly StoredRow[]> {
  const { rows } = await sql<StoredRow>`select ${names(selected)} ${fromPage(page)}
    limit ${limit} offset ${page.offset ?? 0}`.execute(tables);
  return rows;
}

/** The rows of an owner after a position, in the order of their key; without one, in that of all values. */
function fromPage({ table, owner, order, after }: Position): RawBuilder<unknown> {
  const isAfter = after
    ? sql`and (${names(order)}) > (${sql.join(order.map((name) => after[name]))})`
    : sql``;
  const values = table.columns.filter(({ kind }) => kind !== 'other').map(({ name }) => name);
  const sorting = order.length > 0 ? order : [table.ownerColumn, ...values];
  return sql`from ${sql.table(table.name)}
    where ${sql.ref(table.ownerColumn)} = ${owner} ${isAfter} order by ${names(sorting)}`;
}

const names = (columns: readonly string[]): RawBuilder<unknown> =>
  sql.join(columns.map((name) => sql.ref(name)));

interface Some {
  readonly owner: string;
  /** Without it, the rows are deleted in any case. */
  readonly request?: ErasureRequest | undefined;
  readonly limit: number;
  /** Rows with a value in this column are left out. */
  readonly unless?: string | undefined;
}

async function deleteSome(tables: Kysely<Schema>, table: OwnedTable, some: Some): Promise<number> {
  const { numAffectedRows } =
    await sql`delete from ${sql.table(table.name)} where ${isAmong(table, some)}`.execute(tables);
  return Number(numAffectedRows ?? 0);
}

async function renameOwner(
  tables: Kysely<Schema>,
  table: OwnedTable,
  { pseudonym, ...some }: Some & { readonly pseudonym: string },
): Promise<number> {
  const { numAffectedRows } = await sql`update ${sql.table(table.name)}
    set ${sql.ref(table.ownerColumn)} = ${pseudonym} where ${isAmong(table, some)}`.execute(tables);
  return Number(numAffectedRows ?? 0);
}

function isAmong({ name, key, ownerColumn }: OwnedTable, { owner, request, limit, unless }: Some) {
  const isFree = unless === undefined ? sql`` : sql`and ${sql.ref(unless)} is null`;
  // In the same statement, which sees no rows that were stored after the request had ended.
  const isWanted = request === undefined ? sql`` : sql`and ${isRequested(request)}`;
  const isOwn = sql`${sql.ref(ownerColumn)} = ${owner} ${isFree} ${isWanted}`;
  if (key.length === 0) return isOwn;
  return sql`(${names(key)}) in (select ${names(key)} from ${sql.table(name)} where ${isOwn} limit ${limit})`;
}
