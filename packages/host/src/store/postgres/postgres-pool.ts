import pg from 'pg';

const INT8_OID = 20;

export interface PoolRequest {
  readonly url: string;
  readonly max: number;
  /** Milliseconds a statement may take; 0 for no limit. */
  readonly statementTimeout: number;
  /** Is also called for connections that could not be made. */
  readonly onConnectionLost: (error: Error) => void;
}

/** A pool that outlives the loss of its connections and reads 64-bit integers as numbers. */
export function createPostgresPool(request: PoolRequest): pg.Pool {
  const pool = new pg.Pool({
    connectionString: request.url,
    max: request.max,
    types: { getTypeParser },
    statement_timeout: request.statementTimeout,
    idle_in_transaction_session_timeout: 60_000,
    connectionTimeoutMillis: 5_000,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
    application_name: 'sibyl',
  });
  // Without listeners on both, a lost connection would end the process: the pool speaks up for idle
  // clients, while one at work speaks for itself.
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', request.onConnectionLost));
  return pool;
}

const getTypeParser: typeof pg.types.getTypeParser = (oid: number, format?: 'text' | 'binary') => {
  // Milliseconds, counts and sequence numbers all stay far below 2^53.
  if (oid === INT8_OID) return Number;
  return pg.types.getTypeParser(oid, format as 'text');
};
