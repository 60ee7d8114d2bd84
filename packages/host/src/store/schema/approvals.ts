import { bigint, defineTable, type Row, text } from '@sibyl/plugin-kit/tables';
import type { Approval, Decision } from '@sibyl/protocol';

/** Tool calls that need the approval of their user; the id is that of an interrupt, which an approval outlives. */
export const approvals = defineTable(
  'approvals',
  {
    owner: text(),
    id: text(),
    session_id: text(),
    run_id: text(),
    /** Identifies the call within its turn. */
    call: text(),
    call_id: text(),
    tool: text(),
    plugin: text(),
    args_hash: text(),
    required_by: text<Approval['requiredBy']>(),
    /** JSON: arguments and their schema. */
    request: text().sealed('approval'),
    created_at: bigint(),
    expires_at: bigint(),
    decision: text<Decision>().optional(),
    decided_at: bigint().optional(),
    /** JSON. */
    answer: text().optional().sealed('answer'),
    /** Null if the user did not sign. */
    receipt: text().optional().sealed('receipt'),
  },
  {
    key: ['owner', 'id'],
    indexes: { approvals_by_run: { on: ['owner', 'run_id'] } },
    onErase: {
      keeps: 'rows',
      onlyWith: 'receipt',
      reason: 'Receipts of signed decisions, which the operator must keep',
    },
  },
);

export type ApprovalRow = Row<typeof approvals>;
