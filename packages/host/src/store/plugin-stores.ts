import type { PluginDatabase, PluginMigrations, Secrets } from '@sibyl/plugin-kit';
import { type Blobs, getTablePrefix, OwnTables, type SessionState } from '@sibyl/plugin-kit/host';
import type { AnyTable } from '@sibyl/plugin-kit/tables';
import { OracleError } from '@sibyl/protocol';
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { SessionKey } from '../bus/event-bus.js';
import { type Database, type MigrationPlan, prepareQuery, type StoreContext } from './database.js';
import type { Vault } from './encryption.js';
import { keepRules } from './own-data/table-catalog.js';
import type { Schema } from './schema/index.js';
import { holdSession } from './session-store.js';

const MB = 1024 * 1024;
const MAX_BYTES = 25 * MB;
/** Of one user with one plugin, all blobs together. */
const MAX_TOTAL_BYTES = 200 * MB;

type Blob = Parameters<Blobs['put']>[0];

/** The files that plugins store for users. */
export class BlobStore {
  readonly #context: StoreContext;

  constructor(context: StoreContext) {
    this.#context = context;
  }

  /** The files of one user and one plugin. */
  of(scope: PluginScope): Blobs {
    return {
      put: (blob) => this.#put(scope, blob),
      get: (id) => this.#get(scope, id),
      delete: (id) => this.#delete(scope, id),
    };
  }

  async #put(scope: PluginScope, { mediaType, data }: Blob): Promise<string> {
    const { database, newId, clock, disk } = this.#context;
    const size = data.byteLength;
    if (size > MAX_BYTES) throw tooLarge(`A file may have at most ${MAX_BYTES / MB} MB`);
    const id = newId();
    const row = { id, ...scope, media_type: mediaType, size, data, created_at: clock() };
    const space = await disk?.reserve(size);
    try {
      await database.writeFor(scope.owner, async (tables) => {
        if ((await countBytes(tables, scope)) + size > MAX_TOTAL_BYTES)
          throw tooLarge(
            `${MAX_TOTAL_BYTES / MB} MB of files are already stored; delete some first`,
          );
        await tables.insertInto('blobs').values(row).execute();
      });
      return id;
    } finally {
      space?.release();
    }
  }

  async #get({ owner, plugin }: PluginScope, id: string): Promise<Blob | undefined> {
    const row = await this.#context.database.tables
      .selectFrom('blobs')
      .select(['media_type', 'data'])
      .where('owner', '=', owner)
      .where('id', '=', id)
      .where('plugin', '=', plugin)
      .executeTakeFirst();
    return row && { mediaType: row.media_type, data: new Uint8Array(row.data) };
  }

  async #delete({ owner, plugin }: PluginScope, id: string): Promise<void> {
    await this.#context.database.write((tables) =>
      tables
        .deleteFrom('blobs')
        .where('owner', '=', owner)
        .where('id', '=', id)
        .where('plugin', '=', plugin)
        .execute(),
    );
  }
}

async function countBytes(tables: Kysely<Schema>, { owner, plugin }: PluginScope): Promise<number> {
  const { total } = await tables
    .selectFrom('blobs')
    .select((e) => e.fn.sum('size').as('total'))
    .where('owner', '=', owner)
    .where('plugin', '=', plugin)
    .executeTakeFirstOrThrow();
  return Number(total ?? 0);
}

const tooLarge = (message: string) => new OracleError('body_too_large', { message });

/** The data that one plugin stores for one user. */
export interface PluginScope {
  readonly owner: string;
  readonly plugin: string;
}

export interface PluginTablesRequest {
  readonly plugin: string;
  readonly tables?: readonly AnyTable[] | undefined;
  readonly migrations?: PluginMigrations | undefined;
  /** Names of all plugins, so that none uses the tables of another. */
  readonly plugins: readonly string[];
}

/** The tables of plugins. */
export class PluginTables {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Migrates the tables of a plugin and gives access to these tables only. */
  async open(request: PluginTablesRequest): Promise<PluginDatabase> {
    const { engine, now, tables, write, writeFor, read, migrate } = this.#database;
    const own = new OwnTables(request.plugin, request.plugins);
    for (const { name } of request.tables ?? []) own.assertOwn(name);
    const plan = buildPlan(request, (migration) => ({
      up: (handle) => migration(handle.withPlugin(own), engine),
    }));
    if (plan.tables.length > 0) await migrate(plan);
    await keepRules(this.#database, plan.tables);
    return {
      engine,
      now,
      tables: tables.withPlugin(own),
      write: (unit) => write((handle) => unit(handle.withPlugin(own))),
      writeFor: (owner, unit) => writeFor(owner, (handle) => unit(handle.withPlugin(own))),
      read: (unit) => read((handle) => unit(handle.withPlugin(own))),
    };
  }
}

function buildPlan(
  { plugin, tables = [], migrations = {} }: PluginTablesRequest,
  toStep: (migration: PluginMigrations[string]) => Migration,
): MigrationPlan {
  const prefix = getTablePrefix(plugin);
  const steps = Object.entries(migrations).map(([name, step]) => [name, toStep(step)]);
  return {
    author: `plugin ${plugin}`,
    tables,
    steps: Object.fromEntries(steps),
    table: `${prefix}migration`,
    lockTable: `${prefix}migration_lock`,
  };
}

const SECRET_MAX_LENGTH = 16 * 1024;

/** The secrets that plugins store for users, encrypted at rest. */
export class SecretStore {
  readonly #context: StoreContext;
  readonly #vault: Vault;

  constructor(context: StoreContext, vault: Vault) {
    this.#context = context;
    this.#vault = vault;
  }

  /** The secrets of one user and one plugin. */
  of(scope: PluginScope): Secrets {
    return {
      get: (name) => this.#get(scope, name),
      set: (name, value) =>
        value === undefined ? this.#remove(scope, name) : this.#put(scope, name, value),
    };
  }

  async #get({ owner, plugin }: PluginScope, name: string): Promise<string | undefined> {
    const row = await this.#context.database.tables
      .selectFrom('secrets')
      .select('ciphertext')
      .where('owner', '=', owner)
      .where('plugin', '=', plugin)
      .where('name', '=', name)
      .executeTakeFirst();
    if (!row) return undefined;
    const opened = this.#vault.open(row.ciphertext, toVaultContext(owner, plugin, name));
    if ('ok' in opened) return opened.ok;
    throw new OracleError('key_changed', { cause: new Error(`${name}: ${opened.error}`) });
  }

  async #put({ owner, plugin }: PluginScope, name: string, value: string): Promise<void> {
    if (value.length > SECRET_MAX_LENGTH)
      throw new Error(`The secret ${name} is longer than ${SECRET_MAX_LENGTH} characters`);
    const ciphertext = this.#vault.seal(value, toVaultContext(owner, plugin, name));
    await this.#context.database.write((tables) =>
      tables
        .insertInto('secrets')
        .values({ owner, plugin, name, ciphertext })
        .onConflict((c) => c.columns(['owner', 'plugin', 'name']).doUpdateSet({ ciphertext }))
        .execute(),
    );
  }

  async #remove({ owner, plugin }: PluginScope, name: string): Promise<void> {
    await this.#context.database.write((tables) =>
      tables
        .deleteFrom('secrets')
        .where('owner', '=', owner)
        .where('plugin', '=', plugin)
        .where('name', '=', name)
        .execute(),
    );
  }
}

/** Binds the ciphertext to its row, so that it cannot be decrypted in another one. */
const toVaultContext = (owner: string, plugin: string, name: string) => [
  'secret',
  owner,
  plugin,
  name,
];

/** As much as a message may contain, such as the tools of a page. */
export const STATE_MAX_LENGTH = 1024 * 1024;

interface StateScope {
  readonly owner: string;
  readonly sessionId: string;
  readonly plugin: string;
}

const findState = prepareQuery(
  (tables, { owner, sessionId, plugin, key }: StateScope & { readonly key: string }) =>
    tables
      .selectFrom('session_state')
      .select('value')
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .where('plugin', '=', plugin)
      .where('key', '=', key),
);

/** A turn reads states up to this size at once, and at most this many. */
const SMALL_STATE_BYTES = 16 * 1024;
const STATES_PER_READ = 64;

const listStates = prepareQuery((tables, { owner, sessionId }: SessionKey) =>
  tables
    .selectFrom('session_state')
    .select([
      'plugin',
      'key',
      sql<
        string | null
      >`case when octet_length(value) <= ${sql.lit(SMALL_STATE_BYTES)} then value end`.as('value'),
    ])
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId)
    .limit(sql.lit(STATES_PER_READ)),
);

/** The passages that messages of a session cite by numbers: they belong to its copies too. */
export const SOURCES_STATE = { plugin: 'files', key: 'sources' } as const;

/** Copies the sources of a session into a copy of it, inside a unit of work. */
export async function copySources(
  tables: Kysely<Schema>,
  { owner, sessionId }: SessionKey,
  copyId: string,
): Promise<void> {
  const { plugin, key } = SOURCES_STATE;
  const { rows } = await findState(tables, { owner, sessionId, plugin, key });
  for (const { value } of rows)
    await tables
      .insertInto('session_state')
      .values({ owner, session_id: copyId, plugin, key, value })
      .execute();
}

/** What plugins store for a session; it is deleted with the session. */
export class SessionStateStore {
  readonly #context: StoreContext;

  constructor(context: StoreContext) {
    this.#context = context;
  }

  /** The state of one plugin in one session. */
  of(scope: StateScope): SessionState {
    return {
      get: (key) => this.#get(scope, key),
      set: (key, value) =>
        value === undefined
          ? this.#remove(scope, key)
          : this.#put(scope, key, stringifyState(key, value)),
    };
  }

  /** The state of a session during one of its turns. */
  ofTurn(session: SessionKey): SessionStates {
    const read = async () => (await listStates(this.#context.database.tables, session)).rows;
    return new SessionStates((plugin) => this.of({ ...session, plugin }), read);
  }

  async #get(scope: StateScope, key: string): Promise<unknown> {
    const { rows } = await findState(this.#context.database.tables, { ...scope, key });
    return rows[0] && JSON.parse(rows[0].value);
  }

  #put({ owner, sessionId, plugin }: StateScope, key: string, value: string): Promise<void> {
    const { database } = this.#context;
    return database.write(async (tables) => {
      await holdSession(tables, database.engine, { owner, sessionId });
      await tables
        .insertInto('session_state')
        .values({ session_id: sessionId, owner, plugin, key, value })
        .onConflict((c) =>
          c.columns(['owner', 'session_id', 'plugin', 'key']).doUpdateSet({ value }),
        )
        .execute();
    });
  }

  async #remove({ owner, sessionId, plugin }: StateScope, key: string): Promise<void> {
    await this.#context.database.write((tables) =>
      tables
        .deleteFrom('session_state')
        .where('owner', '=', owner)
        .where('session_id', '=', sessionId)
        .where('plugin', '=', plugin)
        .where('key', '=', key)
        .execute(),
    );
  }
}

interface StateRow {
  readonly plugin: string;
  readonly key: string;
  /** Null if it is large. */
  readonly value: string | null;
}

/**
 * Reads the states of a session once for all plugins, and again after a change: only turns write them, and the turns of a
 * session follow one another.
 */
export class SessionStates {
  private reading: Promise<readonly StateRow[]> | undefined;

  constructor(
    private readonly stored: (plugin: string) => SessionState,
    private readonly read: () => Promise<readonly StateRow[]>,
  ) {}

  /** The state of one plugin. */
  of(plugin: string): SessionState {
    return {
      get: async (key) => {
        this.reading ??= this.read().catch((error) => {
          this.reading = undefined;
          throw error;
        });
        const rows = await this.reading;
        const row = rows.find((each) => each.plugin === plugin && each.key === key);
        if (row && row.value !== null) return JSON.parse(row.value);
        // A large value, and those beyond the limit, have to be read alone.
        return row || rows.length === STATES_PER_READ ? this.stored(plugin).get(key) : undefined;
      },
      set: async (key, value) => {
        try {
          await this.stored(plugin).set(key, value);
        } finally {
          this.reading = undefined;
        }
      },
    };
  }
}

function stringifyState(key: string, value: unknown): string {
  const text = JSON.stringify(value);
  if (text === undefined) throw new Error(`The state ${key} cannot be represented as JSON`);
  if (text.length <= STATE_MAX_LENGTH) return text;
  throw new Error(
    `The state ${key} is longer than ${STATE_MAX_LENGTH} characters: keep it in a blob`,
  );
}
