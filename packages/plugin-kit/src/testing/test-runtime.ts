import { DatabaseSync, type SQLInputValue } from 'node:sqlite';
import { Kysely, type SqliteDatabase, SqliteDialect } from 'kysely';
import type { EarlyPluginContext, PluginDatabase, PluginTurn, RoomState } from '../context.js';
import { PluginManifest } from '../manifest.js';
import type { GateRequest, TurnHold } from '../message-gate.js';
import type { OraclePlugin } from '../plugin.js';
import { OwnTables } from '../rules/own-tables.js';
import {
  type LoadedPlugin,
  nameFault,
  orderPlugins,
  type SetUpHook,
  setUpPlugin,
  sharedWith,
} from '../rules/plugin-setup.js';
import { CALLER_HEADER, openTestApp, routesOf, type TestRoute } from './test-app.js';
import { type LogLine, TEST_USER, type TestRuntimeOptions, TestWorld } from './test-host.js';
import { TestTurn, type TurnParts } from './test-turn.js';

export interface TestRequestParts {
  /** DID of the caller; without one the request is anonymous. */
  readonly caller?: string;
  /** Sent as JSON, or as it is if it is a text. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface TestAnswer {
  readonly status: number;
  readonly headers: Headers;
  /** What the JSON says, or the text if it is none. */
  // biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
  readonly body: any;
}

/** Plugins at work without a host, a model or a network. */
export interface TestRuntime {
  readonly plugins: readonly LoadedPlugin[];
  /** What the plugins wrote to the log. */
  readonly log: readonly LogLine[];
  /** The messages that plugins brought from elsewhere. */
  readonly brought: readonly PluginTurn[];
  /** Starts a turn, up to the point where the host would ask a model. */
  turn(parts?: TurnParts): Promise<TestTurn>;
  /** Asks a route of the plugins, over HTTP. */
  request(method: string, path: string, parts?: TestRequestParts): Promise<TestAnswer>;
  /** Asks every gate for leave; rejects with the first refusal. */
  admit(request?: Partial<GateRequest>): Promise<readonly TurnHold[]>;
  /** Every route of the plugins. */
  routes(): Promise<readonly TestRoute[]>;
  close(): Promise<void>;
}

/** Sets up plugins as the host would; rejects with what is wrong with them. */
export async function createTestRuntime(options: TestRuntimeOptions): Promise<TestRuntime> {
  const world = new TestWorld(options);
  const plugins = await setUpPlugins(world);
  let served: ReturnType<typeof openTestApp> | undefined;
  const serve = () => {
    served ??= openTestApp(plugins);
    return served;
  };
  return {
    plugins,
    log: world.log,
    brought: world.brought,
    turn: (parts = {}) => TestTurn.start(world, plugins, parts),
    request: async (method, path, parts = {}) => ask((await serve()).url + path, method, parts),
    admit: (request = {}) => admit(plugins, request),
    routes: async () => routesOf((await serve()).app, plugins),
    close: async () => {
      await (await served)?.app.close();
      await world.close();
    },
  };
}

async function ask(
  url: string,
  method: string,
  { caller, body, headers = {} }: TestRequestParts,
): Promise<TestAnswer> {
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
  return { status: response.status, headers: response.headers, body: await bodyOf(response) };
}

async function bodyOf(response: Response): Promise<unknown> {
  const text = await response.text();
  return response.headers.get('content-type')?.includes('json') ? JSON.parse(text) : text;
}

async function admit(
  plugins: readonly LoadedPlugin[],
  request: Partial<GateRequest>,
): Promise<TurnHold[]> {
  const place = { sessionId: 'test-session', requestId: 'test-request' };
  const whole = { owner: TEST_USER, ...place, model: 'test', length: 5, ...request };
  const holds: TurnHold[] = [];
  for (const { gate } of plugins) {
    const hold = await gate?.admit(whole);
    if (hold) holds.push(hold);
  }
  return holds;
}

/** Sets up the plugins of a test in the order of their dependencies; what is wrong is thrown. */
export async function setUpPlugins(world: TestWorld): Promise<LoadedPlugin[]> {
  const plugins = orderedPlugins(world.options.plugins);
  const database = openMemoryDatabase();
  const contexts = new Map<OraclePlugin, EarlyPluginContext>();
  for (const plugin of plugins) {
    const tables = await openPluginTables(database, plugin, plugins);
    contexts.set(plugin, { ...earlyContext(plugin, world, plugins), database: tables });
  }
  world.onClose(() => database.destroy());
  let rooms: RoomState = world.keepers.rooms;
  for (const [plugin, context] of contexts) rooms = (await plugin.getRoomState?.(context)) ?? rooms;
  const loaded: LoadedPlugin[] = [];
  for (const [plugin, context] of contexts) {
    const shared = sharedWith(plugin, loaded);
    const { name, manifest } = plugin;
    const known = {
      plugin,
      name,
      manifest: PluginManifest.parse(manifest),
      config: context.config,
    };
    loaded.push(await setUpPlugin(known, { ...context, rooms, shared }, callOf(name)));
  }
  return loaded;
}

function orderedPlugins(plugins: readonly OraclePlugin[]): readonly OraclePlugin[] {
  for (const { name, dependsOn = [] } of plugins) {
    const fault = nameFault(name);
    if (fault) throw new Error(`The plugin ${name}: ${fault.problem}. ${fault.remedy}`);
    const missing = dependsOn.find((needed) => !plugins.some((other) => other.name === needed));
    if (missing) throw new Error(`The plugin ${name} needs ${missing}: give the test both`);
  }
  const order = orderPlugins(plugins);
  if ('cycle' in order) throw new Error(`Plugins depend on each other: ${order.cycle.join(' → ')}`);
  return order.ordered;
}

function earlyContext(
  { configSchema }: OraclePlugin,
  world: TestWorld,
  plugins: readonly OraclePlugin[],
): Omit<EarlyPluginContext, 'database'> {
  const { config = {} } = world.options;
  const names = Object.keys(configSchema?.shape ?? {});
  const own = Object.fromEntries(Object.entries(config).filter(([name]) => names.includes(name)));
  return {
    config: Object.freeze(configSchema?.parse(own) ?? {}),
    oracle: world.oracle,
    availablePlugins: new Set(plugins.map(({ name }) => name)),
    logger: world.logger,
    fetch: world.fetch,
    ucan: world.ucan,
    turns: world.turns,
    llm: world.llm,
    onClose: (task) => world.onClose(task),
  };
}

/** As the host does when it starts, but at the first fault. */
const callOf =
  (plugin: string) =>
  async <T>({ hook, run, check, otherwise }: SetUpHook<T>): Promise<T> => {
    const value = await run();
    if (value === undefined) return otherwise;
    const fault = check(value);
    if (fault) throw new Error(`${hook} of ${plugin} returned something else: ${fault}`);
    return value;
  };

// biome-ignore lint/suspicious/noExplicitAny: each plugin names its own tables.
type Tables = Kysely<any>;

/** One SQLite database in memory for all plugins of a test. */
export function openMemoryDatabase(): Tables {
  const handle = new DatabaseSync(':memory:', { enableForeignKeyConstraints: true });
  return new Kysely({ dialect: new SqliteDialect({ database: sqliteDatabaseOf(handle) }) });
}

/** Makes a plugin's tables and opens them, and no others. */
export async function openPluginTables(
  database: Tables,
  { name, migrations = {} }: OraclePlugin,
  plugins: readonly OraclePlugin[],
): Promise<PluginDatabase> {
  const others = plugins.map((plugin) => plugin.name);
  const tables = database.withPlugin(new OwnTables(name, others));
  for (const step of Object.values(migrations))
    await tables.transaction().execute((handle) => step(handle, 'sqlite'));
  return {
    engine: 'sqlite',
    tables,
    write: (unit) => tables.transaction().execute(unit),
    read: (unit) => tables.transaction().execute(unit),
  };
}

function sqliteDatabaseOf(handle: DatabaseSync): SqliteDatabase {
  return {
    close: () => handle.close(),
    prepare: (text) => {
      const statement = handle.prepare(text);
      const valuesOf = (parameters: readonly unknown[]) => parameters as SQLInputValue[];
      return {
        reader: statement.columns().length > 0,
        all: (parameters) => statement.all(...valuesOf(parameters)),
        run: (parameters) => statement.run(...valuesOf(parameters)),
        iterate: (parameters) => statement.iterate(...valuesOf(parameters)),
      };
    },
  };
}
