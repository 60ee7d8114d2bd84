import { bigint, defineTable, type Row, text } from '@sibyl/plugin-kit/tables';
import type { OperatorAction } from '@sibyl/protocol';

const listedUser = { owner: text(), note: text().optional(), created_at: bigint() };

export const operators = defineTable('operators', listedUser, { key: ['owner'] });

export const blockedUsers = defineTable('blocked_users', listedUser, {
  key: ['owner'],
  onErase: {
    keeps: 'rows',
    reason: 'Users whom the operator has blocked, so that they stay blocked',
  },
});

/** Users who share arguments of tools with operators. */
export const sharedArguments = defineTable('shared_arguments', listedUser, { key: ['owner'] });

export type ListedUserRow = Row<typeof operators>;

/** What operators did. */
export const operatorActions = defineTable(
  'operator_actions',
  {
    /** The operator. */
    owner: text(),
    id: text(),
    action: text<OperatorAction['action']>(),
    target: text().optional(),
    note: text().optional(),
    created_at: bigint(),
  },
  {
    key: ['owner', 'id'],
    indexes: { operator_actions_by_id: { on: ['id'] } },
    onErase: { keeps: 'rows', reason: 'What operators did, which must stay accountable' },
  },
);

export type OperatorActionRow = Row<typeof operatorActions>;
