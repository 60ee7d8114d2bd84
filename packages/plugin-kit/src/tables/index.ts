export { bigint, bytes, flag, integer, json, real, text, tsvector } from './columns.js';
export {
  type AnyTable,
  defineTable,
  type EraseRule,
  type Row,
  type StoredRowOf,
  type TablesOf,
  type Values,
} from './table.js';
