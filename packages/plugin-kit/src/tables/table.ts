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

/** A column, prepared for the conversion of rows. */
interface PreparedColumn {
  readonly name: string;
  readonly property: string;
  readonly codec: AnyColumn['options']['codec'];
}

/** A table of both engines: its type, its columns, how its rows are stored, created, exported, imported and erased. */
export class Table<Name extends string, C extends Columns> implements AnyTable {
  readonly columnNames: readonly (keyof C & string)[];
  private readonly prepared: readonly PreparedColumn[];

  constructor(
    readonly name: Name,
    readonly columns: C,
    readonly options: TableOptions<keyof C & string>,
  ) {
    this.columnNames = Object.keys(columns);
    this.prepared = Object.entries(columns).map(([name, { options }]) => ({
      name,
      property: options.property ?? toCamelCase(name),
      codec: options.codec,
    }));
  }

  /** What is stored of values. */
  toRow(values: ColumnsValues<C>): ColumnsSelection<C> {
    const row: Record<string, unknown> = {};
    for (const { name, property, codec } of this.prepared) {
      const value = (values as Record<string, unknown>)[property];
      if (value === undefined) row[name] = null;
      else
        row[name] =
          codec === 'json' ? JSON.stringify(value) : codec === 'flag' ? Number(value) : value;
    }
    return row as ColumnsSelection<C>;
  }

  /** The values of a row, or of those of its columns that were read. */
  toValues(row: ColumnsSelection<C>): ColumnsValues<C> {
    const values: Record<string, unknown> = {};
    for (const { name, property, codec } of this.prepared) {
      const stored = row[name];
      if (stored === null || stored === undefined) continue;
      values[property] =
        codec === 'json' ? JSON.parse(stored) : codec === 'flag' ? stored === 1 : stored;
    }
    return values as ColumnsValues<C>;
  }

  /** The same rows without some of their columns, for those who read only the others. */
  without<const Names extends keyof C & string>(...names: Names[]): Table<Name, Omit<C, Names>> {
    const columns = Object.entries(this.columns).filter(([name]) => !names.some((n) => n === name));
    return new Table(
      this.name,
      Object.fromEntries(columns) as Omit<C, Names>,
      this.options as never,
    );
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
