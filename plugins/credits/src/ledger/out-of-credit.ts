import { OracleError } from '@sibyl/plugin-kit';
import type { Tables } from './tables.js';

const SHOWN = 100;

/** The answer to a user without credit, with the ids of what they left unpaid (contract B1). */
export async function outOfCredit(
  tables: Tables,
  owner: string,
  fault?: string,
): Promise<OracleError> {
  const rows = await tables
    .selectFrom('credits_unpaid')
    .select('id')
    .where('owner', '=', owner)
    .orderBy('created_at')
    .orderBy('id')
    .limit(SHOWN)
    .execute();
  const claims = rows.map(({ id }) => id);
  return new OracleError('insufficient_credit', {
    ...(fault !== undefined && { message: fault, retryAfterSeconds: 5 }),
    // Published clients read one or the other.
    fields: { claims, outstandingClaims: claims },
  });
}
