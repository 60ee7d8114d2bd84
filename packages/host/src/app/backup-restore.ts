import { createHash, randomUUID } from 'node:crypto';
import { createReadStream, existsSync } from 'node:fs';
import {
  chmod,
  copyFile,
  mkdir,
  mkdtemp,
  readFile,
  rename,
  rm,
  stat,
  statfs,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { backup, DatabaseSync } from 'node:sqlite';
import { pipeline } from 'node:stream/promises';
import { z } from 'zod';
import { findOracleIdentity, type OracleIdentity, toKeyFilePath } from '../auth/oracle-identity.js';
import { DirectoryLock } from '../bus/directory-lock.js';
import { type Config, loadConfig } from '../config/config.js';
import { copyDatabase, type TableDigest } from '../store/copy-database.js';
import type { Database } from '../store/database.js';
import { openDatabase } from '../store/open-database.js';
import { RemovalLog } from '../store/own-data/removal-log.js';
import { readCatalog } from '../store/own-data/table-catalog.js';
import { PluginTables } from '../store/plugin-stores.js';
import { toSqlitePath } from '../store/sqlite/sqlite.js';
import { openStore } from '../store/store.js';
import { StoreError } from '../store/store-errors.js';
import { bundledPlugins } from './bundled-plugins.js';

const OWNER_ONLY = 0o600;
const MANIFEST = 'manifest.json';
/** 16 MB: the progress is known as often. */
const PAGES_PER_STEP = 4096;

/** What a backup says about itself. */
const Manifest = z.object({
  createdAt: z.string(),
  /** The DID of the oracle. */
  oracle: z.string(),
  /** Of sibyl.db. */
  sha256: z.string(),
  /** Whether the folder contains the key; otherwise a variable did. */
  hasKey: z.boolean(),
});
type Manifest = z.infer<typeof Manifest>;

/** What was copied, table by table. */
export interface CopiedStore {
  readonly tables: readonly TableDigest[];
}

/** Copies the SQLite file of DATA_DIR to the PostgreSQL database of DATABASE_URL, which must be empty. */
export async function migrateStore(config = loadConfig()): Promise<CopiedStore> {
  const { dataDir, databaseUrl } = config;
  if (!databaseUrl)
    throw new StoreError('Set DATABASE_URL to the PostgreSQL database to which the data is copied');
  if (!existsSync(toSqlitePath(dataDir)))
    throw new StoreError(`There is no SQLite file in ${dataDir}: set DATA_DIR to its folder`);
  const identity = await requireIdentity(config);
  const lock = await DirectoryLock.acquire(dataDir);
  try {
    return await copyToStore(dataDir, config, identity);
  } finally {
    lock.release();
  }
}

/** Writes the database and the key to a new folder; the oracle may be running. `onProgress` is called with shares of 1. */
export async function backUpStore(
  folder: string,
  config = loadConfig(),
  onProgress = (_done: number): void => {},
): Promise<Manifest & { readonly folder: string }> {
  const identity = await requireIdentity(config);
  await mkdir(folder, { mode: 0o700 }).catch((cause) => {
    const reason = cause.code === 'EEXIST' ? 'it exists already' : cause.message;
    throw new StoreError(`Cannot create ${folder}: ${reason}. Name a new folder.`, { cause });
  });
  try {
    // Before the copy begins: what happens later is not part of it.
    const createdAt = new Date().toISOString();
    if (config.databaseUrl) await copyFromStore(folder, config, identity);
    else await copySqlite(config, folder, onProgress);
    const keyFile = toKeyFilePath(config.dataDir);
    const hasKey = !isKeyConfigured(config) && existsSync(keyFile);
    if (hasKey) await copyPrivately(keyFile, toKeyFilePath(folder));
    const sha256 = await hashFile(toSqlitePath(folder));
    const manifest = { createdAt, oracle: identity.did, sha256, hasKey };
    await writeFile(join(folder, MANIFEST), `${JSON.stringify(manifest, null, 2)}\n`);
    return { folder, ...manifest };
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

/** What was removed again after a restore, because it was removed after the backup; undefined if nothing is known of that. */
interface RepeatedRemovals {
  readonly erasedUsers: number;
  readonly revocations: number;
}

/** Puts a backup into the database and the DATA_DIR that the environment names, which has none yet. */
export async function restoreStore(
  folder: string,
  config = loadConfig(),
): Promise<Manifest & { readonly removed: RepeatedRemovals | undefined }> {
  const manifest = await readManifest(folder);
  const lock = await DirectoryLock.acquire(config.dataDir);
  try {
    const removeKey = await restoreKey(folder, manifest, config);
    try {
      if (config.databaseUrl) await restoreToPostgres(folder, config);
      else await restoreToSqlite(folder, config.dataDir);
    } catch (error) {
      await removeKey();
      throw error;
    }
    return { ...manifest, removed: await repeatRemovals(manifest, config) };
  } finally {
    lock.release();
  }
}

async function readManifest(folder: string): Promise<Manifest> {
  const text = await readFile(join(folder, MANIFEST), 'utf8').catch((cause) => {
    throw new StoreError(`${folder} is not a backup: it has no ${MANIFEST}`, { cause });
  });
  const manifest = parseManifest(text);
  if (!manifest) throw createDamageError(folder, `${MANIFEST} is not complete`);
  const sha256 = await hashFile(toSqlitePath(folder)).catch(() => undefined);
  if (sha256 === manifest.sha256) return manifest;
  throw createDamageError(folder, `sibyl.db is not what ${MANIFEST} says`);
}

function parseManifest(text: string): Manifest | undefined {
  try {
    return Manifest.parse(JSON.parse(text));
  } catch {
    return undefined;
  }
}

const createDamageError = (folder: string, problem: string) =>
  new StoreError(`The backup in ${folder} is damaged: ${problem}`);

/** The key comes first: with another one, the database cannot be read. Returns how to remove it again. */
async function restoreKey(
  folder: string,
  manifest: Manifest,
  config: Config,
): Promise<() => Promise<void>> {
  const own = await findOracleIdentity(config);
  if (!own && manifest.hasKey) {
    await checkKey(folder, manifest, config);
    const path = toKeyFilePath(config.dataDir);
    await copyPrivately(toKeyFilePath(folder), path);
    return () => rm(path, { force: true });
  }
  if (own?.did === manifest.oracle) return async () => undefined;
  throw new StoreError(
    own
      ? `The backup belongs to the oracle ${manifest.oracle}, but the key here is that of ${own.did}. Use an empty DATA_DIR, or set the key of that oracle.`
      : `The backup has no key, because a variable had it: set ORACLE_MNEMONIC or ORACLE_PRIVATE_KEY to the key of ${manifest.oracle}`,
  );
}

/** Throws if the key of a backup is not that of its oracle. Only a did:key names its key. */
async function checkKey(folder: string, { oracle }: Manifest, config: Config): Promise<void> {
  const saved = { ...config, oracle: { ...config.oracle, did: undefined }, dataDir: folder };
  const found = await findOracleIdentity(saved).catch(() => undefined);
  const isKnown = found?.did === oracle || !oracle.startsWith('did:key:');
  if (!found || !isKnown)
    throw createDamageError(folder, `oracle.key is missing, or is not the key of ${oracle}`);
}

async function restoreToSqlite(folder: string, dataDir: string): Promise<void> {
  const path = toSqlitePath(dataDir);
  if (existsSync(path))
    throw new StoreError(
      `There is a database in ${dataDir} already. Nothing was restored; set DATA_DIR to an empty folder.`,
    );
  // It may contain what the backup does not; the host builds another one.
  for (const end of ['', '-wal', '-shm'])
    await rm(join(dataDir, `search.db${end}`), { force: true });
  // A copy that is interrupted must not look like a database.
  await copyPrivately(toSqlitePath(folder), `${path}.restoring`);
  await rename(`${path}.restoring`, path);
}

/** Erases users and revokes delegations again for whom that happened after the backup. */
async function repeatRemovals(
  { createdAt }: Manifest,
  config: Config,
): Promise<RepeatedRemovals | undefined> {
  const { did: oracleDid, signer } = await requireIdentity(config);
  const secretKey = signer.exportSeed();
  const removals = await new RemovalLog(config.dataDir, secretKey).read();
  if (!removals) return undefined;
  const { databaseUrl, databaseDirectUrl, dataDir } = config;
  const store = await openStore({ databaseUrl, databaseDirectUrl, dataDir, secretKey, oracleDid });
  try {
    const since = Date.parse(createdAt);
    const erased = new Set(
      removals.flatMap((one) => ('erased' in one && one.at >= since ? one.erased : [])),
    );
    let erasedUsers = 0;
    for (const owner of erased.size > 0 ? await store.ownerRows.owners() : []) {
      if (!erased.has(store.removals.hash(owner))) continue;
      await store.ownerRows.erase(owner, `erased:${randomUUID()}`);
      erasedUsers += 1;
    }
    const now = Date.now() / 1000;
    const revoked = removals.flatMap((one) =>
      'revoked' in one && (one.expiresAt ?? now) >= now
        ? { cid: one.revoked, expiresAt: one.expiresAt }
        : [],
    );
    return { erasedUsers, revocations: await store.revocations.repeat(revoked) };
  } finally {
    await store.close();
  }
}

async function restoreToPostgres(folder: string, config: Config): Promise<void> {
  // Opening it may migrate it, and the backup must stay as it is.
  const copy = await mkdtemp(join(tmpdir(), 'sibyl-restore-'));
  try {
    await copyPrivately(toSqlitePath(folder), toSqlitePath(copy));
    await copyToStore(copy, config, await requireIdentity(config));
  } finally {
    await rm(copy, { recursive: true, force: true });
  }
}

/** From the SQLite file in a folder to the database of the configuration. */
async function copyToStore(
  dataDir: string,
  { databaseUrl, databaseDirectUrl }: Config,
  { did: oracleDid }: OracleIdentity,
): Promise<CopiedStore> {
  return withDatabases(
    () => openDatabase({ dataDir, oracleDid }),
    () => openDatabase({ dataDir, databaseUrl, databaseDirectUrl, oracleDid }),
  );
}

async function copyFromStore(
  folder: string,
  { databaseUrl, databaseDirectUrl, dataDir }: Config,
  { did: oracleDid }: OracleIdentity,
): Promise<CopiedStore> {
  return withDatabases(
    () => openDatabase({ dataDir, databaseUrl, databaseDirectUrl, oracleDid }),
    () => openDatabase({ dataDir: folder, oracleDid }),
  );
}

type Open = () => Promise<Database>;

async function withDatabases(openSource: Open, openTarget: Open): Promise<CopiedStore> {
  const source = await openSource();
  try {
    const target = await openTarget();
    try {
      await createPluginTables(source, target);
      return { tables: await copyDatabase(source, target) };
    } finally {
      await target.close();
    }
  } finally {
    await source.close();
  }
}

/** Plugins that are not loaded have tables, too; both databases get those of this version. */
async function createPluginTables(source: Database, target: Database): Promise<void> {
  const names = (await readCatalog(source)).map(({ name }) => name);
  const plugins = bundledPlugins.map(({ name }) => name);
  for (const { name: plugin, tables, migrations } of bundledPlugins) {
    if (!names.includes(`${plugin.replaceAll('-', '_')}_migration`)) continue;
    for (const database of [source, target])
      await new PluginTables(database).open({ plugin, tables, migrations, plugins });
  }
}

/** With all tables, also those of plugins that do not come with the host. */
async function copySqlite(
  { dataDir, diskMinFree }: Config,
  folder: string,
  onProgress: (done: number) => void,
): Promise<void> {
  const path = toSqlitePath(dataDir);
  if (!existsSync(path)) throw new StoreError(`There is no SQLite file in ${dataDir}`);
  await assertRoom(path, folder, diskMinFree);
  const database = new DatabaseSync(path, { readOnly: true });
  try {
    // One snapshot: otherwise SQLite begins again after each write of the host, and never ends while that is busy.
    database.exec('begin');
    database.prepare('select 1 from sqlite_schema').get();
    await backup(database, toSqlitePath(folder), {
      rate: PAGES_PER_STEP,
      progress: ({ totalPages, remainingPages }) => onProgress(1 - remainingPages / totalPages),
    });
    await chmod(toSqlitePath(folder), OWNER_ONLY);
  } finally {
    database.close();
  }
}

/** A backup beside the database must not stop the oracle. */
async function assertRoom(path: string, folder: string, diskMinFree: number): Promise<void> {
  const [database, target] = [await stat(path), await stat(folder)];
  const minFree = database.dev === target.dev ? diskMinFree : 0;
  const { bavail, bsize } = await statfs(folder);
  const missing = database.size + minFree - bavail * bsize;
  if (missing <= 0) return;
  const text = `${Math.ceil(missing / 1024 ** 2)} MB are missing`;
  throw new StoreError(`There is too little space for the backup in ${folder}: ${text}`);
}

async function copyPrivately(from: string, to: string): Promise<void> {
  await copyFile(from, to);
  await chmod(to, OWNER_ONLY);
}

async function hashFile(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}

const isKeyConfigured = ({ oracle }: Config) =>
  oracle.mnemonic !== undefined || oracle.privateKey !== undefined;

async function requireIdentity(config: Config): Promise<OracleIdentity> {
  const identity = await findOracleIdentity(config);
  if (identity) return identity;
  throw new StoreError(
    `There is no oracle key in ${config.dataDir}: set DATA_DIR to the folder of the oracle, or ORACLE_MNEMONIC or ORACLE_PRIVATE_KEY`,
  );
}
