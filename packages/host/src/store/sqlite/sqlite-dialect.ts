import type { DatabaseSync } from 'node:sqlite';
import type { Dialect, Driver, Kysely, QueryCompiler } from 'kysely';
import { SqliteAdapter, SqliteIntrospector, SqliteQueryCompiler } from 'kysely';
import { SqliteDriver } from './sqlite-driver.js';

/** Kysely on `node:sqlite`. */
export class SqliteDialect implements Dialect {
  readonly #handle: DatabaseSync;

  constructor(handle: DatabaseSync) {
    this.#handle = handle;
  }

  createDriver(): Driver {
    return new SqliteDriver(this.#handle);
  }

  createQueryCompiler(): QueryCompiler {
    return new SqliteQueryCompiler();
  }

  createAdapter(): SqliteAdapter {
    return new TransactionalAdapter();
  }

  // biome-ignore lint/suspicious/noExplicitAny: Kysely's own signature.
  createIntrospector(tables: Kysely<any>): SqliteIntrospector {
    return new SqliteIntrospector(tables);
  }
}

/** Lets all migrations run in one `begin immediate`, which also locks out a second process. */
class TransactionalAdapter extends SqliteAdapter {
  override get supportsTransactionalDdl(): boolean {
    return true;
  }
}
