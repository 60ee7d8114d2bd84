import { defineTable, text } from '@sibyl/plugin-kit/tables';

/** Facts about the database itself, the same for all hosts, and the erasures that have not ended. */
export const databaseInfo = defineTable(
  'database_info',
  { key: text(), value: text() },
  { key: ['key'], ownerColumn: false },
);
