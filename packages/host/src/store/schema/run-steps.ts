import { bigint, defineTable, type Row, text } from '@sibyl/plugin-kit/tables';

/** What a run has done, so that another host can continue it. */
export const runSteps = defineTable(
  'run_steps',
  {
    owner: text(),
    run_id: text(),
    step: bigint(),
    data: text().sealed('step'),
    created_at: bigint(),
  },
  { key: ['owner', 'run_id', 'step'], parent: { table: 'runs', column: 'run_id' } },
);

export type RunStepRow = Row<typeof runSteps>;
