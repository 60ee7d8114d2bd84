import { bigint, defineTable, text } from '@sibyl/plugin-kit/tables';

/** The rules that users have signed. */
export const rules = defineTable(
  'rules',
  {
    owner: text(),
    cid: text(),
    /** JSON. */
    rules: text(),
    token: text().sealed('rules'),
    /** Seconds, as in the token; null if it never expires. */
    expires_at: bigint().optional(),
    stored_at: bigint(),
  },
  { key: ['owner'] },
);
