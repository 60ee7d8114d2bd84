import { bigint, defineTable, text } from '@sibyl/plugin-kit/tables';

/** Requests that a repetition must not execute again. */
export const idempotencyKeys = defineTable(
  'idempotency_keys',
  {
    owner: text(),
    key: text(),
    body_hash: text(),
    run_id: text(),
    created_at: bigint(),
    expires_at: bigint(),
  },
  { key: ['owner', 'key'], indexes: { idempotency_keys_by_expiry: { on: ['expires_at'] } } },
);
