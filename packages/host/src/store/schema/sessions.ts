import { bigint, defineTable, flag, type Row, text } from '@sibyl/plugin-kit/tables';
import { Id } from '@sibyl/protocol';
import { z } from 'zod';
import { BranchNumber, Count, Flag, Time } from './imported-values.js';

export const sessions = defineTable(
  'sessions',
  {
    owner: text(),
    id: text().as('sessionId').imported(Id),
    title: text().imported(z.string().max(1000)),
    created_at: bigint().imported(Time),
    last_updated_at: bigint().imported(Time),
    oracle_did: text(),
    oracle_name: text().optional(),
    oracle_entity_did: text().optional(),
    room_id: text().imported(z.string().max(512)),
    last_seq: bigint().imported(Count),
    last_turn: bigint().imported(Count),
    /** The branch that readers see and new messages continue. */
    active_branch: bigint().as('branch').imported(BranchNumber.catch(0)),
    /** The number of branches besides the first. */
    last_branch: bigint().imported(BranchNumber.catch(0)),
    /** The last message of the active branch, perhaps an answer that is not stored yet. */
    active_message_id: text().optional().imported(Id),
    /** What it was before the last change, which a statement returns in this way. */
    previous_message_id: text().optional().imported(Id),
    /** Whether it appears in no list and is deleted once it is not used any more. */
    unlisted: flag().as('isUnlisted').default(0).imported(Flag.catch(0)),
  },
  {
    key: ['owner', 'id'],
    indexes: {
      // Read backwards it is the order of the session list, so that list needs no sort; sessions are counted from it alone.
      sessions_by_update: { on: ['owner', 'last_updated_at', 'id', 'unlisted'] },
    },
  },
);

export type SessionRow = Row<typeof sessions>;
