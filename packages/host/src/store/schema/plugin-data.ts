import { bigint, bytes, defineTable, text } from '@sibyl/plugin-kit/tables';

/** What plugins keep for sessions. */
export const sessionState = defineTable(
  'session_state',
  { owner: text(), session_id: text(), plugin: text(), key: text(), value: text() },
  {
    key: ['owner', 'session_id', 'plugin', 'key'],
    parent: { table: 'sessions', column: 'session_id' },
  },
);

/** The secrets that plugins keep for users. */
export const secrets = defineTable(
  'secrets',
  { owner: text(), plugin: text(), name: text(), ciphertext: text().omitted() },
  { key: ['owner', 'plugin', 'name'] },
);

/** The files that plugins keep for users. */
export const blobs = defineTable(
  'blobs',
  {
    owner: text(),
    id: text(),
    plugin: text(),
    media_type: text(),
    size: bigint(),
    data: bytes(),
    created_at: bigint(),
  },
  { key: ['owner', 'id'], indexes: { blobs_by_owner: { on: ['owner', 'plugin', 'size'] } } },
);
