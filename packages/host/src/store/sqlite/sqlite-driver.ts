import type { DatabaseSync } from 'node:sqlite';
import type { Driver, TransactionSettings } from 'kysely';
import { CompiledQuery } from 'kysely';
import { SqliteConnection } from './sqlite-connection.js';
import { whenFree } from './when-free.js';

const BUSY_TIMEOUT_MS = 5_000;

/** Kysely's driver port on one `node:sqlite` handle; Kysely itself serialises its users. */
export class SqliteDriver implements Driver {
  readonly #handle: DatabaseSync;
  readonly #connection: SqliteConnection;

  constructor(handle: DatabaseSync) {
    this.#handle = handle;
    this.#connection = new SqliteConnection(handle);
  }

  async init(): Promise<void> {
    this.#handle.exec(`pragma busy_timeout = ${BUSY_TIMEOUT_MS}`);
  }

  async acquireConnection(): Promise<SqliteConnection> {
    return this.#connection;
  }

  async beginTransaction(_: unknown, settings: TransactionSettings): Promise<void> {
    if (settings.accessMode === 'read only') return this.#handle.exec('begin');
    // Taking the write lock at once: a reader that turns writer midway could not wait for its turn.
    await whenFree(() => this.#beginImmediate());
  }

  async commitTransaction(): Promise<void> {
    this.#handle.exec('commit');
  }

  async rollbackTransaction(): Promise<void> {
    // SQLite rolls back by itself when the disk is full or fails.
    if (this.#handle.isTransaction) this.#handle.exec('rollback');
  }

  async savepoint(_: unknown, name: string): Promise<void> {
    await this.#run(`savepoint "${name}"`);
  }

  async rollbackToSavepoint(_: unknown, name: string): Promise<void> {
    await this.#run(`rollback to "${name}"`);
  }

  async releaseSavepoint(_: unknown, name: string): Promise<void> {
    await this.#run(`release "${name}"`);
  }

  async releaseConnection(): Promise<void> {}

  async destroy(): Promise<void> {
    this.#handle.close();
  }

  async #run(sql: string): Promise<void> {
    await this.#connection.executeQuery(CompiledQuery.raw(sql));
  }

  #beginImmediate(): void {
    this.#handle.exec('pragma busy_timeout = 0');
    try {
      this.#handle.exec('begin immediate');
    } finally {
      this.#handle.exec(`pragma busy_timeout = ${BUSY_TIMEOUT_MS}`);
    }
  }
}
