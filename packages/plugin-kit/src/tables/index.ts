export {
  bigint,
  bytes,
  type Column,
  type ColumnsRow,
  type ColumnsSelection,
  flag,
  integer,
  json,
  real,
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
