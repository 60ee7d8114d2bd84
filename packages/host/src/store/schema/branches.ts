import { bigint, defineTable, type Row, text } from '@sibyl/plugin-kit/tables';
import { Id } from '@sibyl/protocol';
import { z } from 'zod';
import { BranchNumber, Count } from './imported-values.js';

/** The messages of a session that continue from an earlier one in another way. */
export const branches = defineTable(
  'branches',
  {
    owner: text(),
    session_id: text().imported(Id),
    /** From 1; the first messages of a session are branch 0. */
    branch: bigint().imported(BranchNumber.min(1)),
    /** The branch of the message it continues from; null if it begins the session again. */
    base_branch: bigint().optional().imported(BranchNumber.nullable()),
    /** The last message of that branch that belongs to this one too. */
    base_turn: bigint().imported(Count),
    base_seq: bigint().imported(Count),
    /** The message it continues from; empty if it begins the session again. */
    parent_id: text().imported(z.union([Id, z.literal('')])),
    /** The message that continued from there first. */
    original_id: text().optional().imported(Id.nullable()),
    /** The first message of the branch, perhaps an answer that is not stored yet. */
    first_id: text().imported(Id),
  },
  {
    key: ['owner', 'session_id', 'branch'],
    parent: { table: 'sessions', column: 'session_id' },
    indexes: { branches_by_parent: { on: ['owner', 'session_id', 'parent_id', 'branch'] } },
  },
);

export type BranchRow = Row<typeof branches>;
