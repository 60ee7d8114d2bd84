import { bigint, defineTable, text } from '@sibyl/plugin-kit/tables';

export const importJobs = defineTable(
  'import_jobs',
  {
    owner: text(),
    id: text(),
    /** JSON. */
    progress: text(),
    created_at: bigint(),
    updated_at: bigint(),
  },
  { key: ['owner', 'id'] },
);
