import { bigint, defineTable, text } from '@sibyl/plugin-kit/tables';

/** Callers who were invited. */
export const callers = defineTable(
  'callers',
  {
    did: text(),
    /** The invitation that was redeemed. */
    cid: text(),
    created_at: bigint(),
  },
  { key: ['did'], ownerColumn: 'did' },
);
