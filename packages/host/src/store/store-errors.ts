import { setTimeout as sleep } from 'node:timers/promises';
import { OracleError } from '@sibyl/protocol';
import { ConfigError } from '@sibyl/server-kit/environment';
import type { Logger } from 'pino';
import type { Database } from './database.js';

/** `passing`: a retry may succeed soon. `lasting`: the operator must fix it first. */
export type StoreErrorKind = 'passing' | 'full' | 'lasting';

/** SQLite's primary result codes for a file that cannot be used. All others are bugs in queries. */
const SQLITE_ERRORS: Readonly<Record<number, StoreErrorKind>> = {
  5: 'passing', // BUSY
  6: 'passing', // LOCKED
  7: 'passing', // NOMEM
  8: 'lasting', // READONLY
  10: 'passing', // IOERR
  11: 'lasting', // CORRUPT
  13: 'full', // FULL
  14: 'passing', // CANTOPEN
  15: 'passing', // PROTOCOL: locking
  26: 'lasting', // NOTADB
};

/** IOERR_SHMSIZE: there is no space for the index of the log. */
const SQLITE_NO_INDEX = 4874;

/** Codes of Node and pg for a server that does not answer. */
const CONNECTION_ERRORS = /^(ECONN|ETIMEDOUT|EPIPE|ENOTFOUND|EHOSTUNREACH|ENETUNREACH|EAI_AGAIN)/;

/** The out-of-space codes of PostgreSQL and of the file system. */
const FULL_ERRORS = /^(53100|ENOSPC|EDQUOT)$/;

/**
 * PostgreSQL's classes of connection errors, insufficient resources, shutdown and system errors; a failed login or missing
 * database; a timeout, deadlock or serialization failure; a read-only server.
 */
const POSTGRES_ERRORS = /^(08|53|57|58|28|3D|25006$|25P0[34]$|40001$|40P01$|55P03$)/;

/** A deadlock or a serialization failure: PostgreSQL has rolled the transaction back in favor of another one. */
const ROLLED_BACK = /^40(P01|001)$/;
const MAX_ATTEMPTS = 5;

const POSTGRES_CORRUPTION = /^XX00[12]$/;

/** Errors without a code, of pg's pool and client and of a closed driver. */
const CODELESS_ERRORS =
  /^(Connection terminated|timeout exceeded when trying to connect|timeout expired|Query read timeout|Client (has encountered a connection error|was closed) and is not queryable|Cannot use a pool after calling end|Postgres connection has been discarded|driver has already been destroyed|database is not open)/;

/** How the database failed; undefined if the error is a bug rather than a failure of the database. */
export function classifyStoreError(error: unknown): StoreErrorKind | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code = '', errcode = 0 } = error as { code?: unknown; errcode?: number };
  if (code === 'ERR_SQLITE_ERROR')
    return errcode === SQLITE_NO_INDEX ? 'full' : SQLITE_ERRORS[errcode & 0xff];
  const text = String(code);
  if (FULL_ERRORS.test(text)) return 'full';
  if (POSTGRES_CORRUPTION.test(text)) return 'lasting';
  if (CONNECTION_ERRORS.test(text) || POSTGRES_ERRORS.test(text)) return 'passing';
  if (CODELESS_ERRORS.test(error.message)) return 'passing';
  if (!(error instanceof StoreError)) return undefined;
  return classifyStoreError(error.cause) ?? 'passing';
}

/** What the operator has to change: a failed login, a missing database. */
const LOGIN_ERRORS = /^(28|3D)/;

/** Whether an error says that the database does not answer, which a later try may find over. */
export function isUnreachable(error: unknown): boolean {
  const isExplained = error instanceof StoreError || error instanceof ConfigError;
  const fault = isExplained ? error.cause : error;
  const { code = '' } = (fault ?? {}) as { readonly code?: unknown };
  return classifyStoreError(fault) === 'passing' && !LOGIN_ERRORS.test(String(code));
}

export const isStoreError = (error: unknown): boolean => classifyStoreError(error) !== undefined;

/** The error of the catalog; an unexpected error becomes `internal_error` without details. */
export function toOracleError(error: unknown): OracleError {
  if (error instanceof OracleError) return error;
  const fault = classifyStoreError(error);
  if (fault === 'lasting') return new OracleError('store_unavailable');
  if (fault) return new OracleError('store_unavailable', { retryAfterSeconds: 5 });
  return new OracleError('internal_error');
}

/** Runs a transaction again if the database rolled it back because of another one. */
export async function repeatRolledBack<T>(transact: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await transact();
    } catch (error) {
      const { code } = error as { readonly code?: unknown };
      if (attempt === MAX_ATTEMPTS || !ROLLED_BACK.test(String(code))) throw error;
    }
  }
}

const FIRST_WAIT_MS = 100;
const LAST_WAIT_MS = 1_000;

interface Repetition {
  /** How long failures may last. */
  readonly waitMs: number;
  readonly signal: AbortSignal;
}

/** Reads again while the database is away, for at most some time: a short outage must not fail work that was accepted. */
export async function repeatRead<T>(
  read: () => Promise<T>,
  { waitMs, signal }: Repetition,
): Promise<T> {
  const deadline = performance.now() + waitMs;
  for (let pause = FIRST_WAIT_MS; ; pause = Math.min(2 * pause, LAST_WAIT_MS)) {
    try {
      return await read();
    } catch (error) {
      if (signal.aborted || !isAway(error) || performance.now() + pause > deadline) throw error;
      await sleep(pause);
    }
  }
}

const isAway = (error: unknown): boolean =>
  classifyStoreError(error) === 'passing' ||
  (error instanceof OracleError && error.code === 'store_unavailable');

/** Describes the error without details, which only the operator may see. */
export function describeStoreError(kind: StoreErrorKind): string {
  switch (kind) {
    case 'passing':
      return 'The database does not accept writes at the moment';
    case 'full':
      return 'The disk of the database is full';
    case 'lasting':
      return 'The database cannot be written to until the operator repairs it';
    default:
      return kind satisfies never;
  }
}

/** The store cannot be opened or reached; the message contains a remedy and no secrets. */
export class StoreError extends Error {
  override readonly name: string = 'StoreError';
}

/** The transaction is committed, but a power failure would lose it. */
export class UnsyncedError extends StoreError {
  override readonly name = 'UnsyncedError';
}

/** On a full disk a small write may succeed while larger ones fail, so an outage ends after a time without failures. */
const QUIET_MS = 5_000;

/** What operators see of an outage. */
interface StoreOutageState {
  readonly since: Date;
  readonly failures: number;
  /** What the last error said. */
  readonly reason: string;
}

/** Logs when an outage of the store begins and ends, not every failed request in between. */
export class StoreOutage {
  private readonly logger: Pick<Logger, 'error' | 'info'>;
  private outage:
    | {
        readonly since: number;
        lastFailure: number;
        failures: number;
        reason: string;
        kind: StoreErrorKind;
      }
    | undefined;

  private timer: NodeJS.Timeout | undefined;
  private isClosed = false;
  private probe: () => Promise<void> = async () => {};

  /** Failures since the start. */
  readonly counts: Record<StoreErrorKind, number> = {
    passing: 0,
    full: 0,
    lasting: 0,
  };

  constructor(logger: Pick<Logger, 'error' | 'info'>) {
    this.logger = logger;
  }

  /** The outage that has not ended; undefined if the store is available. */
  get current(): StoreOutageState | undefined {
    if (!this.outage) return undefined;
    const { since, failures, reason } = this.outage;
    return { since: new Date(Date.now() - (performance.now() - since)), failures, reason };
  }

  /** Whether writes fail because the disk is full; smaller ones may succeed. */
  get isFull(): boolean {
    return this.outage?.kind === 'full';
  }

  failed(error: unknown): void {
    const kind = classifyStoreError(error);
    if (!kind) return;
    this.counts[kind] += 1;
    const reason = describeReason(error);
    if (this.outage) {
      this.outage.failures += 1;
      this.outage.reason = reason;
      this.outage.kind = kind;
      this.outage.lastFailure = performance.now();
      return;
    }
    const now = performance.now();
    if (!this.isClosed) this.timer = setInterval(() => void this.probe(), QUIET_MS).unref();
    this.outage = { since: now, lastFailure: now, failures: 1, reason, kind };
    this.logger.error(
      { err: error },
      'the store is unavailable; further failures are not logged until it is available again',
    );
  }

  succeeded(): void {
    if (!this.outage || performance.now() - this.outage.lastFailure < QUIET_MS) return;
    const { since, lastFailure, failures } = this.outage;
    this.outage = undefined;
    clearInterval(this.timer);
    const seconds = Math.round((lastFailure - since) / 100) / 10;
    this.logger.info({ failures, seconds }, 'the store is available again');
  }

  /** Observes all writes; reads do not show that an outage has ended. During an outage, `probe` writes regularly. */
  watch(database: Database, probe: (database: Database) => Promise<void>): Database {
    this.probe = () => this.observe(probe(database)).catch(() => undefined);
    return {
      ...database,
      write: (unit, options) => this.observe(database.write(unit, options)),
      writeFor: (owner, unit, options) => this.observe(database.writeFor(owner, unit, options)),
    };
  }

  /** Stops writing during an outage. */
  close(): void {
    this.isClosed = true;
    clearInterval(this.timer);
  }

  private async observe<T>(writing: Promise<T>): Promise<T> {
    try {
      const value = await writing;
      this.succeeded();
      return value;
    } catch (error) {
      this.failed(error);
      throw error;
    }
  }
}

const MAX_REASON = 300;

/** Errors of several addresses have an empty message. */
function describeReason(error: unknown): string {
  const { errors } = error as { readonly errors?: readonly unknown[] };
  const first = Array.isArray(errors) && errors.length > 0 ? errors[0] : error;
  return (first instanceof Error ? first.message : String(first)).slice(0, MAX_REASON);
}
