import { bigint, defineTable, text } from '@sibyl/plugin-kit/tables';

/** The running hosts as they last reported themselves. */
export const hosts = defineTable(
  'hosts',
  {
    id: text(),
    /** JSON. */
    report: text(),
    started_at: bigint(),
    updated_at: bigint(),
  },
  { key: ['id'], ownerColumn: false },
);
