import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, inject } from 'vitest';
import { openStore, type Store, type StoreOptions } from '../../src/store/store.js';
import { addTwins, forAllUsers } from './twins.js';

export type Engine = 'sqlite' | 'postgres';
/** Both, except in runs that repeat the tests many times. */
export const engines: readonly Engine[] =
  process.env.SIBYL_TEST_ENGINES === 'sqlite' ? ['sqlite'] : ['sqlite', 'postgres'];

/** A new empty database. */
export interface TestDatabase {
  readonly options: StoreOptions;
  /** The variables of a host that uses it. */
  readonly env: Readonly<Record<string, string>>;
  drop(): Promise<void>;
}

export async function createTestDatabase(engine: Engine): Promise<TestDatabase> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-store-'));
  const options = { dataDir, secretKey: new Uint8Array(32).fill(7) };
  const removeDir = () => rmSync(dataDir, { recursive: true, force: true });
  // All hosts on one database are the same oracle.
  const env = { DATA_DIR: dataDir, ORACLE_MNEMONIC: 'the oracle of a test' };
  if (engine === 'sqlite') return { options, env, drop: async () => removeDir() };
  const name = `sibyl_${randomUUID().replaceAll('-', '')}`;
  await onServer(`create database ${name}`);
  return {
    options: { ...options, databaseUrl: toUrl(name) },
    env: { ...env, DATABASE_URL: toUrl(name) },
    drop: async () => {
      removeDir();
      await onServer(`drop database ${name} with (force)`);
    },
  };
}

/** A store open during the surrounding `describe`; `another` opens it once more, as a second process would. */
export interface TestStore {
  readonly store: Store;
  readonly options: StoreOptions;
  another(options?: Partial<StoreOptions>): Promise<Store>;
  /** Runs what works on the rows of all users on purpose. */
  forAllUsers<T>(work: () => Promise<T>): Promise<T>;
}

interface UseStoreOptions extends Partial<StoreOptions> {
  /** False for what works on the rows of all owners; see `addTwins`. */
  readonly hasTwins?: boolean;
}

export function useStore(
  engine: Engine,
  { hasTwins = process.env.SIBYL_TEST_TWINS === 'true', ...overrides }: UseStoreOptions = {},
): TestStore {
  const opened: Store[] = [];
  let database: TestDatabase;
  const another = async (options: Partial<StoreOptions> = {}) => {
    const store = await openStore({ ...database.options, ...overrides, ...options });
    opened.push(store);
    return store;
  };
  beforeAll(async () => {
    database = await createTestDatabase(engine);
    await another();
    if (hasTwins && engine === 'sqlite') await addTwins(database.options.dataDir);
  });
  afterAll(async () => {
    for (const store of opened) await store.close();
    await database?.drop();
  });
  return {
    get store() {
      return opened[0] as Store;
    },
    get options() {
      return database.options;
    },
    another,
    forAllUsers: (work) => forAllUsers(database.options.dataDir, work),
  };
}

/** A DID that no other test uses. */
export function newOwner(): string {
  return `did:key:z${randomUUID()}`;
}

async function onServer(statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: serverUrl() });
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}

function toUrl(database: string): string {
  const url = new URL(serverUrl());
  url.pathname = `/${database}`;
  return url.href;
}

function serverUrl(): string {
  const postgres = inject('postgres');
  if ('fault' in postgres) throw new Error(postgres.fault);
  return postgres.url;
}
