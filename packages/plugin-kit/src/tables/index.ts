export {
  bigint,
  bytes,
  type Column,
  flag,
  integer,
  json,
  type RowOf,
  real,
  type StoredOf,
  text,
  tsvector,
} from './columns.js';
export {
  type AnyTable,
  defineTable,
  type EraseRule,
  type Row,
  type StoredRowOf,
  type Table,
  type TablesOf,
  type Values,
} from './table.js';
