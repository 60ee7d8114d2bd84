import { chmodSync, closeSync, existsSync, mkdirSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { Kysely, sql } from 'kysely';
import { type Database, type DatabaseState, type ReclaimedLog, readSnapshot } from '../database.js';
import { hostSchema, isBehind, migrate } from '../migrations.js';
import type { Schema } from '../schema/index.js';
import { classifyStoreError, isStoreError, StoreError } from '../store-errors.js';
import { GroupCommit, LogFile } from './group-commit.js';
import { retryWhileBusy, SqliteDialect } from './sqlite-dialect.js';

const OWNER_ONLY = 0o600;

/** SQLite copies the log into the file when the log has this size; pages that were written often are copied once. */
const LOG_BYTES = 16 * 1024 * 1024;
const PAGE_BYTES = 4096;

/**
 * The first setting applies only to new files; with the second, deleted rows are overwritten; the last limits the size of the log after a burst of writes. LogFile syncs
 * every commit; SQLite syncs only what keeps the file intact.
 */
const SETTINGS = `
  pragma auto_vacuum = incremental;
  pragma secure_delete = on;
  pragma journal_mode = wal;
  pragma synchronous = normal;
  pragma wal_autocheckpoint = ${LOG_BYTES / PAGE_BYTES};
  pragma journal_size_limit = ${LOG_BYTES};
`;

/**
 * What undoes one unit of a transaction alone. SQLite would write it to a temporary file if it exceeds 64 KB, as most
 * commits of turns do; migrations may exceed the memory.
 */
const SETTINGS_AFTER_MIGRATION = 'pragma temp_store = memory';

/** Opens `sibyl.db` in `dataDir`, creating both if needed, readable only by this user. */
export async function openSqlite(dataDir: string, onFull = () => {}): Promise<Database> {
  const path = toSqlitePath(dataDir);
  const handle = await openWriter(dataDir, path);
  const dialect = new SqliteDialect(handle);
  const writer = new Kysely<Schema>({ dialect });
  try {
    await migrate(writer, hostSchema);
    handle.exec(SETTINGS_AFTER_MIGRATION);
    const log = new LogFile(`${path}-wal`);
    await log.sync();
    const reader = await openReader(path);
    const freeSpace = createSpaceFreer(handle, onFull);
    const commits = new GroupCommit(dialect, log, freeSpace);
    return asDatabase({ handle, writer, reader, commits });
  } catch (error) {
    await writer.destroy();
    throw isStoreError(error) ? toOpenError(path, error) : error;
  }
}

/** Moving the log takes some time, and helps at most once. */
const FREE_SPACE_MS = 1_000;

/** What to do when the disk is full: what the log contains is moved into the file, so that its space can be used again. */
function createSpaceFreer(handle: DatabaseSync, onFull: () => void): () => void {
  let nextAt = 0;
  return () => {
    if (performance.now() < nextAt) return;
    nextAt = performance.now() + FREE_SPACE_MS;
    onFull();
    checkpoint(handle, 'passive');
  };
}

/** Reads use a separate connection, so that they do not wait while another process writes. */
async function openReader(path: string): Promise<Kysely<Schema>> {
  const reader = createTables(new DatabaseSync(path, { readOnly: true }));
  // Kysely does not close a connection that was never used.
  await sql`select 1`.execute(reader);
  return reader;
}

async function openWriter(dataDir: string, path: string): Promise<DatabaseSync> {
  let handle: DatabaseSync | undefined;
  try {
    createPrivateFile(dataDir, path);
    const opened = new DatabaseSync(path, { timeout: 0, enableForeignKeyConstraints: true });
    handle = opened;
    await retryWhileBusy(() => opened.exec(SETTINGS));
    return opened;
  } catch (error) {
    handle?.close();
    throw toOpenError(path, error);
  }
}

/** SQLite gives -wal and -shm the mode of the main file. An existing directory keeps its mode. */
function createPrivateFile(dataDir: string, path: string): void {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  closeSync(openSync(path, 'a', OWNER_ONLY));
  chmodSync(path, OWNER_ONLY);
}

interface Connections {
  readonly handle: DatabaseSync;
  readonly writer: Kysely<Schema>;
  readonly reader: Kysely<Schema>;
  readonly commits: GroupCommit;
}

function asDatabase({ handle, writer, reader, commits }: Connections): Database {
  return {
    engine: 'sqlite',
    now: Date.now,
    tables: reader,
    write: (unit, options) => commits.write(unit, options),
    // SQLite has one writer at a time, for all owners.
    writeFor: (_owner, unit, options) => commits.write(unit, options),
    estimateDelay: () => commits.estimateDelay(),
    isStoring: (ms) => commits.isStoring(ms),
    read: (unit) => readSnapshot(reader, unit),
    migrate: (plan) => commits.write((tables) => migrate(tables, plan)),
    reclaim: (log) => reclaim(handle, commits, log),
    close: async () => {
      await commits.close();
      // The writer is last, since it moves the log into the main file.
      await reader.destroy();
      await writer.destroy();
    },
  };
}

/** Checks whether the file in `dataDir` can be read and written; changes nothing. */
export async function probeSqlite(dataDir: string): Promise<DatabaseState> {
  const path = toSqlitePath(dataDir);
  if (!existsSync(path)) return 'absent';
  try {
    return await probe(path);
  } catch (error) {
    throw toOpenError(path, error);
  }
}

async function probe(path: string): Promise<DatabaseState> {
  const url = pathToFileURL(path);
  // Creates no file. Opening it read-only would leave -wal and -shm files.
  url.searchParams.set('mode', 'rw');
  const handle = new DatabaseSync(url, { timeout: 0 });
  try {
    await retryWhileBusy(() => handle.exec('begin immediate; rollback'));
    return (await isBehind(createTables(handle), hostSchema)) ? 'behind' : 'ready';
  } finally {
    handle.close();
  }
}

export const toSqlitePath = (dataDir: string): string => join(dataDir, 'sibyl.db');

export const createTables = (handle: DatabaseSync): Kysely<Schema> =>
  new Kysely<Schema>({ dialect: new SqliteDialect(handle) });

/** Names the file, since the operator may know only the folder. */
function toOpenError(path: string, error: unknown): StoreError {
  if (error instanceof StoreError) return error;
  const reason = error instanceof Error ? error.message : String(error);
  const remedy =
    classifyStoreError(error) === 'full'
      ? 'free some space on its disk, then start again'
      : 'check DATA_DIR';
  return new StoreError(`Cannot open the SQLite file ${path}: ${reason}; ${remedy}`, {
    cause: error,
  });
}

/** Few enough that one batch does not block the event loop for long. */
const PAGES_PER_PORTION = 256;

/** Returns free pages to the file system, in batches between other writes. */
async function reclaim(
  handle: DatabaseSync,
  commits: GroupCommit,
  log: ReclaimedLog = 'emptied',
): Promise<void> {
  let left = readPragma(handle, 'freelist_count');
  for (let before = left + 1; left > 0 && left < before; ) {
    before = left;
    left = await commits.write(async () => {
      handle.exec(`pragma incremental_vacuum(${PAGES_PER_PORTION})`);
      return readPragma(handle, 'freelist_count');
    });
  }
  // The file shrinks, and an empty log no longer contains what was deleted.
  checkpoint(handle, log === 'emptied' ? 'truncate' : 'passive');
}

/** Moves the log into the file. */
function checkpoint(handle: DatabaseSync, mode: 'passive' | 'truncate'): void {
  try {
    handle.exec(`pragma wal_checkpoint(${mode})`);
  } catch (error) {
    // Another write has begun, or the disk is full; a later checkpoint does the same.
    if (!isStoreError(error)) throw error;
  }
}

function readPragma(handle: DatabaseSync, name: string): number {
  return Number(Object.values(handle.prepare(`pragma ${name}`).get() ?? {})[0]);
}
