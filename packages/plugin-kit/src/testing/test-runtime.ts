import { DatabaseSync, type SQLInputValue } from 'node:sqlite';
import { describeIssues } from '@sibyl/protocol';
import { Kysely, type SqliteDatabase, SqliteDialect, sql } from 'kysely';
import { z } from 'zod';
import type { PluginDatabase } from '../context.js';
import { checkPluginMembers, checkPluginName, checkPluginObject } from '../host/hook-checks.js';
import { OwnTables } from '../host/own-tables.js';
import {
  type LoadedPlugin,
  orderPlugins,
  type PluginCandidate,
  type SetupHooks,
  setUpPlugins,
} from '../host/plugin-setup.js';
import { PluginManifest } from '../manifest.js';
import type { GateRequest, OraclePlugin, TurnHold } from '../plugin.js';
import { createTables } from '../tables/create-tables.js';
import type { DelegatedTurn, PluginTurn } from '../turns.js';
import { CALLER_HEADER, listRoutes, openTestApp, type TestRoute } from './test-app.js';
import { type LogLine, TEST_USER, TestHost, type TestRuntimeOptions } from './test-host.js';
import { TestTurn, type TestTurnOptions } from './test-turn.js';

export interface TestRequest {
  /** DID of the caller; without one the request is anonymous. */
  readonly caller?: string;
  /** Sent as JSON; a string is sent unchanged. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface TestResponse {
  readonly status: number;
  readonly headers: Headers;
  /** Parsed JSON, or text. */
  // biome-ignore lint/suspicious/noExplicitAny: the assertions of a test state what it expects.
  readonly body: any;
}

/** A table of a plugin, as the database describes it. */
export interface TestTable {
  readonly name: string;
  readonly columns: readonly string[];
  /** The columns of the primary key, in order. */
  readonly key: readonly string[];
}

/** Plugins that run without a host, a model or a network. */
export interface TestRuntime {
  readonly plugins: readonly LoadedPlugin[];
  /** What the plugins logged. */
  readonly log: readonly LogLine[];
  /** The turns that plugins started with `context.turns`. */
  readonly startedTurns: readonly PluginTurn[];
  /** The turns that plugins started with `context.delegatedTurns`. */
  readonly delegatedTurns: readonly DelegatedTurn[];
  /** Starts a turn, up to the first model call. */
  turn(options?: TestTurnOptions): Promise<TestTurn>;
  /** Requests a route of the plugins over HTTP. */
  request(method: string, path: string, request?: TestRequest): Promise<TestResponse>;
  /** Calls every message gate; rejects with the first refusal. */
  admit(request?: Partial<GateRequest>): Promise<readonly TurnHold[]>;
  /** Every route of the plugins. */
  routes(): Promise<readonly TestRoute[]>;
  /** Every table of the plugins. */
  tables(): Promise<readonly TestTable[]>;
  close(): Promise<void>;
}

/** Sets up plugins as the host does; rejects with the first error. */
export async function createTestRuntime(options: TestRuntimeOptions): Promise<TestRuntime> {
  const host = new TestHost(options);
  const database = openMemoryDatabase();
  host.onClose(() => database.destroy());
  const plugins = await loadPlugins(host, database);
  let app: ReturnType<typeof openTestApp> | undefined;
  const openApp = () => {
    app ??= openTestApp(plugins);
    return app;
  };
  return {
    plugins,
    log: host.log,
    startedTurns: host.startedTurns,
    delegatedTurns: host.delegatedTurns.started,
    turn: (turnOptions = {}) => TestTurn.start(host, plugins, turnOptions),
    request: async (method, path, request = {}) =>
      send((await openApp()).url + path, method, request),
    admit: (request = {}) => admit(plugins, request),
    routes: async () => listRoutes((await openApp()).app, plugins),
    tables: () => listTables(database),
    close: async () => {
      await (await app)?.app.close();
      await host.close();
    },
  };
}

async function loadPlugins(host: TestHost, database: Database): Promise<LoadedPlugin[]> {
  const plugins = sortPlugins(host.options.plugins);
  const candidates: PluginCandidate[] = [];
  for (const plugin of plugins)
    candidates.push(await createCandidate(plugin, { host, database, plugins }));
  return setUpPlugins(candidates, host.memory.rooms);
}

function sortPlugins(plugins: readonly OraclePlugin[]): readonly OraclePlugin[] {
  for (const plugin of plugins) {
    const error = checkPluginObject(plugin) ?? checkPluginName(plugin.name);
    if (error) throw new Error(`Plugin ${plugin?.name}: ${error.problem}. ${error.remedy}`);
    const { name, dependsOn = [] } = plugin;
    const misspelled = checkPluginMembers(plugin);
    if (misspelled) throw new Error(`Plugin ${name}: ${misspelled}`);
    const missing = dependsOn.find((needed) => !plugins.some((other) => other.name === needed));
    if (missing)
      throw new Error(
        `Plugin ${name} depends on ${missing}: add it to \`plugins\`, or of contractTests to \`dependencies\``,
      );
  }
  const order = orderPlugins(plugins);
  if ('cycle' in order) throw new Error(`Plugins depend on each other: ${order.cycle.join(' → ')}`);
  return order.ordered;
}

interface Surroundings {
  readonly host: TestHost;
  readonly database: Database;
  readonly plugins: readonly OraclePlugin[];
}

async function createCandidate(
  plugin: OraclePlugin,
  { host, database, plugins }: Surroundings,
): Promise<PluginCandidate> {
  const { name, manifest, configSchema } = plugin;
  const variables = Object.keys(configSchema?.shape ?? {});
  const given = Object.entries(host.options.config ?? {});
  const own = Object.fromEntries(given.filter(([variable]) => variables.includes(variable)));
  const config = Object.freeze(
    parse(
      configSchema ?? z.object({}),
      own,
      (problem) => `Plugin ${name}: ${problem}. Set the option \`config\``,
    ),
  );
  const described = parse(
    PluginManifest,
    manifest,
    (problem) => `Plugin ${name}: its manifest is invalid: ${problem}`,
  );
  return {
    selected: { plugin, name, manifest: described, config },
    hooks: throwingHooks(name),
    onClose: (task) => host.onClose(task),
    context: {
      config,
      oracle: host.oracle,
      publicUrl: 'https://oracle.example',
      secrets: (owner) => host.memory.secrets(owner, plugin.name),
      availablePlugins: new Set(plugins.map((other) => other.name)),
      logger: host.logger,
      database: await openPluginTables(database, plugin, plugins),
      fetch: host.fetch,
      ucan: host.ucan,
      turns: host.turns,
      delegatedTurns: host.delegatedTurns,
      surface: host.surface,
      hosts: {
        hostId: 'test',
        send: () => true,
        on: () => undefined,
        findDead: async () => [],
      },
      findHolder: async (owner) => ({ owner, address: owner, isKnown: false }),
      llm: host.llm,
      embeddings: host.options.embeddings,
    },
  };
}

function parse<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
  toMessage: (problem: string) => string,
): z.output<Schema> {
  const { data, error } = schema.safeParse(value);
  if (error) throw new Error(toMessage(describeIssues(error.issues, 'it').join('; ')));
  return data as z.output<Schema>;
}

/** Throws the first error, where the host collects them. */
const throwingHooks = (plugin: string): SetupHooks => ({
  hasFailed: false,
  call: async ({ hook, run, check, otherwise }) => {
    const value = await run();
    if (value === undefined) return otherwise;
    const error = check(value);
    if (error) throw new Error(`${hook} of ${plugin} returned an invalid value: ${error}`);
    return value;
  },
  fail: (problem) => {
    throw new Error(`Plugin ${plugin}: ${problem}`);
  },
});

async function send(
  url: string,
  method: string,
  { caller, body, headers = {} }: TestRequest,
): Promise<TestResponse> {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const response = await fetch(url, {
    method,
    headers: {
      ...(text !== undefined && { 'content-type': 'application/json' }),
      ...(caller && { [CALLER_HEADER]: caller }),
      ...headers,
    },
    ...(text !== undefined && { body: text }),
  });
  const reply = await response.text();
  const isJson = response.headers.get('content-type')?.includes('json');
  return {
    status: response.status,
    headers: response.headers,
    body: isJson ? JSON.parse(reply) : reply,
  };
}

async function admit(
  plugins: readonly LoadedPlugin[],
  request: Partial<GateRequest>,
): Promise<TurnHold[]> {
  const ids = { sessionId: 'test-session', requestId: 'test-request' };
  const complete = { owner: TEST_USER, ...ids, model: 'test', length: 5, ...request };
  const holds: TurnHold[] = [];
  for (const { gate } of plugins) {
    const hold = await gate?.admit(complete);
    if (hold) holds.push(hold);
  }
  return holds;
}

// biome-ignore lint/suspicious/noExplicitAny: each plugin names its own tables.
type Database = Kysely<any>;

/** One SQLite database in memory for all plugins of a test. */
function openMemoryDatabase(): Database {
  const handle = new DatabaseSync(':memory:', { enableForeignKeyConstraints: true });
  return new Kysely({ dialect: new SqliteDialect({ database: toSqliteDatabase(handle) }) });
}

/** Without the tables of full-text indexes. */
async function listTables(database: Database): Promise<TestTable[]> {
  const { rows } = await sql<{ table: string; column: string; place: number }>`
    select t.name as "table", c.name as "column", c.pk as place
    from pragma_table_list t join pragma_table_info(t.name) c
    where t.schema = 'main' and t.type = 'table' and t.name not like 'sqlite\\_%' escape '\\'
    order by t.name, c.cid`.execute(database);
  return [...Map.groupBy(rows, ({ table }) => table)].map(([name, columns]) => ({
    name,
    columns: columns.map(({ column }) => column),
    key: columns
      .filter(({ place }) => place > 0)
      .sort((a, b) => a.place - b.place)
      .map(({ column }) => column),
  }));
}

/** Creates the tables of a plugin; the handle refuses those of others. */
async function openPluginTables(
  database: Database,
  { name, tables: definitions = [] }: OraclePlugin,
  plugins: readonly OraclePlugin[],
): Promise<PluginDatabase> {
  const names = plugins.map((plugin) => plugin.name);
  const own = new OwnTables(name, names);
  for (const table of definitions) own.assertOwn(table.name);
  const tables = database.withPlugin(own);
  await tables.transaction().execute((handle) => createTables(handle, definitions, 'sqlite'));
  return {
    engine: 'sqlite',
    tables,
    write: (unit) => tables.transaction().execute(unit),
    now: Date.now,
    writeFor: (_owner, unit) => tables.transaction().execute(unit),
    read: (unit) => tables.transaction().execute(unit),
  };
}

function toSqliteDatabase(handle: DatabaseSync): SqliteDatabase {
  return {
    close: () => handle.close(),
    prepare: (text) => {
      const statement = handle.prepare(text);
      const toValues = (parameters: readonly unknown[]) => parameters as SQLInputValue[];
      return {
        reader: statement.columns().length > 0,
        all: (parameters) => statement.all(...toValues(parameters)),
        run: (parameters) => statement.run(...toValues(parameters)),
        iterate: (parameters) => statement.iterate(...toValues(parameters)),
      };
    },
  };
}
