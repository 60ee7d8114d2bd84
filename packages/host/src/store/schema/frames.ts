import { bigint, defineTable, type Row, text } from '@sibyl/plugin-kit/tables';

/** Consecutive frames of runs. */
export const frames = defineTable(
  'frames',
  {
    owner: text(),
    run_id: text(),
    /** The number of the last frame. */
    seq: bigint(),
    /** For each frame its event, a space and its data, which has no line breaks. */
    lines: text(),
  },
  { key: ['owner', 'run_id', 'seq'], parent: { table: 'runs', column: 'run_id' } },
);

export type FrameChunkRow = Row<typeof frames>;
