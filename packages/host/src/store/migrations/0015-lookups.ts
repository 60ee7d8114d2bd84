import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
type Tables = Kysely<any>;

/**
 * Operators look up turns of any user by id; hosts read which revoked tokens have not expired, and at every upload the quota
 * of a user; users see which plugin last used a delegation.
 */
export const lookups: Migration = {
  async up(tables: Tables) {
    await tables.schema.createIndex('runs_by_id').on('runs').column('id').execute();
    await tables.schema
      .createIndex('revocations_by_expiry')
      .on('revocations')
      .column('expires_at')
      .execute();
    await tables.schema
      .createIndex('files_by_size')
      .on('files')
      .columns(['owner', 'status', 'updated_at', 'size', 'id'])
      .execute();
    await tables.schema.alterTable('delegations').addColumn('last_used_by', 'text').execute();
  },
};
