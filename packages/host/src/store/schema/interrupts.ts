import { bigint, defineTable, json, type Row, text } from '@sibyl/plugin-kit/tables';
import type { JsonObject, PendingAnswer } from '@sibyl/protocol';

/** What paused runs wait for. */
export const interrupts = defineTable(
  'interrupts',
  {
    owner: text(),
    id: text(),
    session_id: text(),
    run_id: text(),
    turn: bigint(),
    /** The call that needs the answer. */
    call_id: text(),
    /** Identifies the interrupt within its turn. */
    path: text(),
    kind: text<PendingAnswer['kind']>(),
    /** JSON Schema of the answer. */
    schema: json<JsonObject>(),
    data: text().optional().sealed('interrupt'),
    status: text<'open' | 'answered' | 'expired' | 'cancelled'>(),
    expires_at: bigint(),
    answer: text().optional().sealed('answer'),
    answered_at: bigint().optional(),
    /** The run that continues with the answer. */
    next_run_id: text().optional(),
    created_at: bigint(),
  },
  {
    key: ['owner', 'id'],
    parent: { table: 'runs', column: 'run_id' },
    indexes: {
      interrupts_by_run: { on: ['owner', 'run_id'] },
      interrupts_by_turn: { on: ['owner', 'session_id', 'turn', 'created_at', 'id'] },
      interrupts_open: { on: ['owner', 'session_id'], where: "status = 'open'" },
      interrupts_by_expiry: { on: ['expires_at'], where: "status = 'open'" },
    },
  },
);

export type InterruptRow = Row<typeof interrupts>;
