import type { SessionRow } from '../database/schema.js';

/** The title of a session that nobody has named yet (contract B2). */
export const UNTITLED = 'Untitled';

/** A conversation of one user with one oracle; times in milliseconds. */
export interface Session {
  readonly id: string;
  readonly owner: string;
  readonly title: string;
  readonly createdAt: number;
  readonly lastUpdatedAt: number;
  readonly oracleDid: string;
  readonly oracleName?: string;
  readonly oracleEntityDid?: string;
  readonly roomId: string;
}

export function toSession(row: SessionRow): Session {
  return {
    id: row.id,
    owner: row.owner,
    title: row.title,
    createdAt: row.created_at,
    lastUpdatedAt: row.last_updated_at,
    oracleDid: row.oracle_did,
    ...(row.oracle_name !== null && { oracleName: row.oracle_name }),
    ...(row.oracle_entity_did !== null && { oracleEntityDid: row.oracle_entity_did }),
    roomId: row.room_id,
  };
}
