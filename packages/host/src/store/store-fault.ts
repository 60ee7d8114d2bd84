import { StoreError } from './database/store-error.js';

/** SQLite's primary result codes for a file that cannot be used now: locked, full, unreadable. */
const SQLITE_FAULTS: ReadonlySet<number> = new Set([5, 6, 10, 13, 14]);

/** What Node and pg say when the server does not answer. */
const CONNECTION_FAULTS = /^(ECONN|ETIMEDOUT|EPIPE|ENOTFOUND|EHOSTUNREACH|EAI_AGAIN)/;

/** PostgreSQL's classes of connection faults, shortage and shutdown. */
const POSTGRES_FAULTS = /^(08|53|57P|58)/;

/** Whether a failure is the database's and may pass, rather than a bug of ours. */
export function isStoreFault(error: unknown): boolean {
  if (error instanceof StoreError) return true;
  if (!(error instanceof Error)) return false;
  const { code = '', errcode = 0 } = error as { code?: string; errcode?: number };
  if (code === 'ERR_SQLITE_ERROR') return SQLITE_FAULTS.has(errcode & 0xff);
  if (CONNECTION_FAULTS.test(code) || POSTGRES_FAULTS.test(code)) return true;
  // Faults of pg's own pool and client carry no code.
  return /^(Connection terminated|timeout exceeded when trying to connect)/.test(error.message);
}
