import { bigint, defineTable, text } from '@sibyl/plugin-kit/tables';

/** Revoked delegations. */
export const revocations = defineTable(
  'revocations',
  {
    owner: text(),
    cid: text(),
    /** Seconds; null for a delegation that never expires. */
    expires_at: bigint().optional(),
  },
  {
    key: ['cid', 'owner'],
    indexes: {
      revocations_by_owner: { on: ['owner'] },
      revocations_by_expiry: { on: ['expires_at'] },
    },
    onErase: {
      keeps: 'without owner',
      reason: 'Hashes of revoked delegations, so that these stay revoked',
    },
  },
);

/** Tokens that are accepted once, until they expire. */
export const singleUse = defineTable(
  'single_use',
  { cid: text(), owner: text(), expires_at: bigint() },
  {
    key: ['cid'],
    indexes: {
      single_use_by_expiry: { on: ['expires_at'] },
      single_use_by_owner: { on: ['owner'] },
    },
    onErase: {
      keeps: 'without owner',
      reason:
        'Hashes of used invocations and invitations, so that these stay used until they expire',
    },
  },
);
