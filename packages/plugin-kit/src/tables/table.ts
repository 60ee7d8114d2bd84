import type { DatabaseEngine } from '../context.js';
import type { AnyColumn, Columns, ColumnsRow, ColumnsSelection, ColumnsValues } from './columns.js';

/** Statements that the engines need besides the table itself, such as those of a full-text index. */
type Statements = Partial<Readonly<Record<DatabaseEngine, readonly string[]>>>;

interface IndexOptions<Name> {
  readonly on: readonly Name[];
  readonly isUnique?: boolean;
  /** A condition, literally as in the queries that use the index. */
  readonly where?: string;
}

/** What is left of a table when its user is erased. */
export interface EraseRule {
  /** `rows`: they stay as they are. `without owner`: they stay, but no longer say whose they were. */
  readonly keeps: 'rows' | 'without owner';
  /** Only rows with a value in this column are kept. */
  readonly onlyWith?: string | undefined;
  /** The reply to the user contains it. */
  readonly reason: string;
}

export interface TableOptions<Name extends string = string> {
  readonly key: readonly Name[];
  /** The table whose rows these belong to, by `owner` and this column; they are deleted with it. */
  readonly parent?: { readonly table: string; readonly column: Name };
  /** By name. */
  readonly indexes?: Readonly<Record<string, IndexOptions<Name>>>;
  /** Default: `owner`. False if the rows belong to no user. */
  readonly ownerColumn?: Name | false;
  /** By default, erasing a user deletes the rows. */
  readonly onErase?: EraseRule;
  /** Computed from other tables, or exported as files, so that exports do not contain it. */
  readonly isDerived?: boolean;
  /** The rows need not survive a crash of PostgreSQL. */
  readonly isUnlogged?: boolean;
  /** An integer key of SQLite that full-text indexes refer to, since a VACUUM renumbers other row ids. */
  readonly rowId?: string;
  /** Default: both. */
  readonly engine?: DatabaseEngine;
  readonly statements?: Statements;
}

/** A table of any columns. */
export interface AnyTable {
  readonly name: string;
  readonly columns: Columns;
  readonly columnNames: readonly string[];
  readonly options: TableOptions;
}

/** A table of both engines: its type, its columns, how its rows are stored, created, exported, imported and erased. */
export class Table<Name extends string, C extends Columns> implements AnyTable {
  readonly columnNames: readonly (keyof C & string)[];
  private readonly codecs: readonly Codec[];

  constructor(
    readonly name: Name,
    readonly columns: C,
    readonly options: TableOptions<keyof C & string>,
  ) {
    this.columnNames = Object.keys(columns);
    this.codecs = Object.entries(columns).map(
      ([column, { options }]) => new Codec(column, options),
    );
  }

  /** What is stored of values. */
  toRow(values: ColumnsValues<C>): ColumnsRow<C> {
    const row: Record<string, unknown> = {};
    for (const codec of this.codecs) codec.encode(values as Record<string, unknown>, row);
    return row as ColumnsRow<C>;
  }

  /** The values of a row, or of those of its columns that were read. */
  toValues(row: ColumnsSelection<C>): ColumnsValues<C> {
    const values: Record<string, unknown> = {};
    for (const codec of this.codecs) codec.decode(row, values);
    return values as ColumnsValues<C>;
  }
}

/** A column of a table: converts values in both directions. */
class Codec {
  private readonly property: string;

  constructor(
    private readonly column: string,
    private readonly options: AnyColumn['options'],
  ) {
    this.property = options.property ?? toCamelCase(column);
  }

  encode(values: Record<string, unknown>, row: Record<string, unknown>): void {
    const value = values[this.property];
    if (value !== undefined) row[this.column] = this.toStored(value);
    else if (this.options.defaultValue === undefined) row[this.column] = null;
  }

  decode(row: Record<string, unknown>, values: Record<string, unknown>): void {
    const stored = row[this.column];
    if (stored !== null && stored !== undefined) values[this.property] = this.toValue(stored);
  }

  private toStored(value: unknown): unknown {
    if (this.options.codec === 'json') return JSON.stringify(value);
    return this.options.codec === 'flag' ? Number(value) : value;
  }

  private toValue(stored: unknown): unknown {
    if (this.options.codec === 'json') return JSON.parse(stored as string);
    return this.options.codec === 'flag' ? stored === 1 : stored;
  }
}

const toCamelCase = (name: string): string =>
  name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

/** Defines a table: everything about it follows from this. The tables of a plugin begin with its name and `_`. */
export const defineTable = <const Name extends string, const C extends Columns>(
  name: Name,
  columns: C,
  options: TableOptions<keyof C & string>,
): Table<Name, C> => new Table(name, columns, options);

/** The type of a row for Kysely. */
export type Row<T extends { readonly columns: Columns }> = ColumnsRow<T['columns']>;

/** A row as the engines return it. */
export type SelectedRow<T extends { readonly columns: Columns }> = ColumnsSelection<T['columns']>;

/** The type of a row for programs. */
export type Values<T extends { readonly columns: Columns }> = ColumnsValues<T['columns']>;

/** The tables of a definition, for Kysely. */
export type TableTypes<Definitions extends readonly AnyTable[]> = {
  [T in Definitions[number] as T['name']]: Row<T>;
};
