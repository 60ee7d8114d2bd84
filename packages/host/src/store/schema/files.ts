import { bigint, bytes, defineTable, integer, type Row, text } from '@sibyl/plugin-kit/tables';

/** The files of users. */
export const files = defineTable(
  'files',
  {
    owner: text(),
    id: text(),
    name: text(),
    media_type: text(),
    /** What is reserved while the file is being uploaded. */
    size: bigint(),
    /** SHA-256; null unless the file is ready. */
    hash: text().optional(),
    status: text<'uploading' | 'ready' | 'deleting'>(),
    /** Where its chunks are. */
    storage: text<'database' | 's3'>(),
    chunk_bytes: integer(),
    text_status: text<'pending' | 'ready' | 'none' | 'failed'>(),
    text_error: text().optional(),
    text_unit: text<'page' | 'sheet' | 'paragraph' | 'line'>().optional(),
    text_count: integer().optional(),
    text_complete: integer().optional(),
    /** How often reading its text was begun. */
    attempts: integer(),
    /** Until when a host reads or embeds its text. */
    lease_until: bigint().optional(),
    created_at: bigint(),
    updated_at: bigint(),
    /** Bytes of its passages, which may be far more than its own; null if there are none. */
    text_bytes: bigint().optional(),
    /** The host that receives it, or was the last to read or embed its text. */
    host_id: text().optional(),
    /** The model of its vectors; null until all of its passages have one. */
    vector_model: text().optional(),
  },
  {
    key: ['owner', 'id'],
    indexes: {
      files_by_hash: { on: ['owner', 'hash'], isUnique: true },
      // What a user has stored is summed up at every upload.
      files_by_size: { on: ['owner', 'status', 'updated_at', 'size', 'id'] },
      files_by_text_bytes: { on: ['owner', 'text_bytes'] },
      files_to_read: { on: ['owner', 'id'], where: "text_status = 'pending'" },
      files_to_embed: {
        on: ['owner', 'id'],
        where: "text_status = 'ready' and vector_model is null",
      },
      files_unfinished: { on: ['updated_at'], where: "status <> 'ready'" },
    },
  },
);

export type FileRow = Row<typeof files>;

/** The bytes of files. */
export const fileChunks = defineTable(
  'file_chunks',
  {
    owner: text(),
    file_id: text(),
    n: integer(),
    data: bytes().omitted('the files are in uploads, as a whole'),
  },
  { key: ['owner', 'file_id', 'n'], isDerived: true },
);
