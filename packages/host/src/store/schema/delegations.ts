import { bigint, defineTable, integer, json, type Row, text } from '@sibyl/plugin-kit/tables';
import type { AccessKeyCaveats } from '@sibyl/protocol';

/** What a user delegated for: calls of services, logins, turns at set times, rules. */
export type DelegationPurpose = 'services' | 'access-key' | 'schedule' | 'rules';

/** What users delegated to the oracle, and to the programs that have access keys. */
export const delegations = defineTable(
  'delegations',
  {
    owner: text(),
    cid: text(),
    purpose: text<DelegationPurpose>(),
    audience: text(),
    capabilities: json<readonly { readonly can: string; readonly with: string }[]>().optional(),
    /** The token, of the current delegation alone. */
    ciphertext: text().optional().omitted(),
    /** Seconds, as in the token; null for a delegation that never expires. */
    expires_at: bigint().optional(),
    created_at: bigint(),
    /** Null for a delegation that was presented in a request, but never stored by its user. */
    stored_at: bigint().optional(),
    last_used_at: bigint().optional(),
    /** The name of the plugin that last used it. */
    last_used_by: text().optional(),
    /** The columns below belong to access keys. */
    name: text().optional(),
    caveats: json<AccessKeyCaveats>().optional(),
    /** The day (UTC) that `turns` counts. */
    turns_day: text().optional(),
    turns: integer().optional(),
  },
  {
    key: ['owner', 'cid', 'purpose'],
    indexes: {
      delegations_current: {
        on: ['owner', 'purpose', 'audience', 'stored_at'],
        where: 'ciphertext is not null',
      },
      delegations_by_expiry: { on: ['expires_at'] },
    },
  },
);

export type DelegationRow = Row<typeof delegations>;
