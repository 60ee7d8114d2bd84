import type { Generated } from 'kysely';
import type { z } from 'zod';

/** Types that SQLite and PostgreSQL share; SQLite keeps bytes as they are in a column of any type. */
export type StoredType = 'text' | 'integer' | 'bigint' | 'double precision' | 'bytea' | 'tsvector';

interface ColumnOptions {
  readonly type: StoredType;
  readonly isOptional?: boolean;
  readonly defaultValue?: string | number;
  /** The property of the stored value; default: the name of the column in camel case. */
  readonly property?: string;
  /** Between a value and what is stored of it. */
  readonly codec?: 'json' | 'flag';
  /** Checks what an archive contains for this column: the value of JSON, and what is stored for everything else. */
  readonly imported?: z.ZodType;
  /** The kind that its text is encrypted as; exports contain it in plain text. */
  readonly sealedAs?: string;
  /** Why exports do not contain it. */
  readonly omittedBecause?: string;
}

/** A column: `Stored` is what the engines hold, `Value` what programs use, `Name` the property if it has its own. */
export class Column<Stored, Value = Stored, IsDefault extends boolean = false, Name = never> {
  declare readonly stored: Stored;
  declare readonly value: Value;
  declare readonly isDefault: IsDefault;
  declare readonly name: Name;

  constructor(readonly options: ColumnOptions) {}

  /** Null in the table, undefined in programs. */
  optional(): Column<Stored | null, Value | undefined, IsDefault, Name> {
    return new Column({ ...this.options, isOptional: true });
  }

  /** What a new row has if it says nothing else. */
  default(value: Stored & (string | number)): Column<Stored, Value, true, Name> {
    return new Column({ ...this.options, defaultValue: value });
  }

  /** The property in programs, if it is not that of the column. */
  as<const Property extends string>(
    property: Property,
  ): Column<Stored, Value, IsDefault, Property> {
    return new Column({ ...this.options, property });
  }

  /** Imports take the column from an archive if the schema accepts it. */
  imported(schema: z.ZodType): Column<Stored, Value, IsDefault, Name> {
    return new Column({ ...this.options, imported: schema });
  }

  /** Encrypted; exports contain it in plain text. */
  sealed(kind: string): Column<Stored, Value, IsDefault, Name> {
    return new Column({ ...this.options, sealedAs: kind });
  }

  /** Exports do not contain it. */
  omitted(reason = 'a credential'): Column<Stored, Value, IsDefault, Name> {
    return new Column({ ...this.options, omittedBecause: reason });
  }
}

// biome-ignore lint/suspicious/noExplicitAny: a column of any type.
export type AnyColumn = Column<any, any, boolean, any>;
export type Columns = Readonly<Record<string, AnyColumn>>;

// `NoInfer`, since a list of any columns would make their types any.
export const text = <T extends string = string>(): Column<NoInfer<T>> =>
  new Column({ type: 'text' });
/** Up to 2^31 on PostgreSQL. */
export const integer = () => new Column<number>({ type: 'integer' });
/** Times in milliseconds, sizes, and what may become large. */
export const bigint = () => new Column<number>({ type: 'bigint' });
export const real = () => new Column<number>({ type: 'double precision' });
export const bytes = () => new Column<Uint8Array>({ type: 'bytea' });
/** The words of a text, on PostgreSQL only. */
export const tsvector = () => new Column<string>({ type: 'tsvector' });
/** 1 or 0 in the table, true or false in programs. */
export const flag = () => new Column<number, boolean>({ type: 'integer', codec: 'flag' });
/** JSON as text. */
export const json = <T>(): Column<string, NoInfer<T>> =>
  new Column({ type: 'text', codec: 'json' });

/** A row as the engines hold it: the type of a table for Kysely. */
export type ColumnsRow<C extends Columns> = {
  -readonly [Name in keyof C]: true extends C[Name]['isDefault']
    ? Generated<C[Name]['stored']>
    : C[Name]['stored'];
};

/** A row as the engines return it. */
export type ColumnsSelection<C extends Columns> = {
  -readonly [Name in keyof C]: C[Name]['stored'];
};

type CamelCase<Name> = Name extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : Name;

type Property<C extends Columns, Name extends keyof C> = [C[Name]['name']] extends [never]
  ? CamelCase<Name>
  : C[Name]['name'];

type OptionalNames<C extends Columns> = {
  [Name in keyof C]: undefined extends C[Name]['value'] ? Name : never;
}[keyof C];

type Flat<T> = { [Key in keyof T]: T[Key] };

/** A row as programs use it: properties in camel case, missing values undefined. */
export type ColumnsValues<C extends Columns> = Flat<
  {
    readonly [Name in Exclude<keyof C, OptionalNames<C>> as Property<C, Name> &
      string]: C[Name]['value'];
  } & {
    readonly [Name in OptionalNames<C> as Property<C, Name> & string]?: C[Name]['value'];
  }
>;
