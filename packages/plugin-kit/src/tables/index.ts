export {
  bigint,
  bytes,
  type Column,
  flag,
  integer,
  json,
  type ColumnsRow,
  real,
  type ColumnsSelection,
  text,
  tsvector,
} from './columns.js';
export {
  type AnyTable,
  defineTable,
  type EraseRule,
  type Row,
  type SelectedRow,
  type Table,
  type TableTypes,
  type Values,
} from './table.js';
