import type { DynamicModule, Type } from '@nestjs/common';
import { PluginManifest } from '../manifest.js';
import type { MessageGate } from '../message-gate.js';
import type { Middleware } from '../middleware.js';
import type { AuthExcludedRoute, OraclePlugin, SharedState } from '../plugin.js';
import type { PluginContext } from '../plugin-context.js';
import type { RoomState } from '../room-state.js';
import { hookChecks } from '../rules/hook-checks.js';
import { dependenciesOf, orderPlugins } from '../rules/order-plugins.js';
import { nameFault } from '../rules/plugin-name.js';
import type { SubAgent } from '../sub-agent.js';
import type { Tool } from '../tool.js';
import { openMemoryDatabase, openPluginTables } from './memory-database.js';
import type { TestWorld } from './test-world.js';

/** A plugin that is set up, as the host would have it. */
export interface ReadyPlugin {
  readonly plugin: OraclePlugin;
  readonly name: string;
  readonly manifest: PluginManifest;
  readonly config: Readonly<Record<string, unknown>>;
  readonly shared: SharedState;
  readonly tools: readonly Tool[];
  readonly subAgents: readonly SubAgent[];
  readonly middlewares: readonly Middleware[];
  readonly gate: MessageGate | undefined;
  readonly nestModules: readonly (Type | DynamicModule)[];
  readonly openRoutes: readonly AuthExcludedRoute[];
}

type EarlyContext = Omit<PluginContext, 'rooms' | 'shared'>;

/** Sets up the plugins of a test in the order of their dependencies; what is wrong is thrown. */
export async function setUpPlugins(world: TestWorld): Promise<ReadyPlugin[]> {
  const plugins = orderedPlugins(world.options.plugins);
  const database = openMemoryDatabase();
  const contexts = new Map<OraclePlugin, EarlyContext>();
  for (const plugin of plugins) {
    const tables = await openPluginTables(database, plugin, plugins);
    contexts.set(plugin, { ...earlyContext(plugin, world, plugins), database: tables });
  }
  world.onClose(() => database.destroy());
  let rooms: RoomState = world.keepers.rooms;
  for (const [plugin, context] of contexts) rooms = (await plugin.getRoomState?.(context)) ?? rooms;
  const ready: ReadyPlugin[] = [];
  for (const [plugin, context] of contexts) {
    const sources = new Set(dependenciesOf(plugin));
    const shared = ready.filter(({ name }) => sources.has(name)).map((one) => one.shared);
    ready.push(await setUp(plugin, { ...context, rooms, shared: Object.assign({}, ...shared) }));
  }
  return ready;
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
): Omit<EarlyContext, 'database'> {
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

async function setUp(plugin: OraclePlugin, context: PluginContext): Promise<ReadyPlugin> {
  const check = checkOf(plugin.name);
  return {
    plugin,
    name: plugin.name,
    manifest: PluginManifest.parse(plugin.manifest),
    config: context.config,
    shared: check('getSharedState', (await plugin.getSharedState?.(context)) ?? {}, 'sharedState'),
    tools: check('getTools', (await plugin.getTools?.(context)) ?? [], 'tools'),
    subAgents: check('getSubAgents', (await plugin.getSubAgents?.(context)) ?? [], 'subAgents'),
    middlewares: check(
      'getMiddlewares',
      (await plugin.getMiddlewares?.(context)) ?? [],
      'middlewares',
    ),
    gate: await plugin.getMessageGate?.(context),
    nestModules: check(
      'getNestModules',
      (await plugin.getNestModules?.(context)) ?? [],
      'nestModules',
    ),
    openRoutes: check('getAuthExcludedRoutes', plugin.getAuthExcludedRoutes?.() ?? [], 'routes'),
  };
}

/** As the host does when it starts. */
const checkOf =
  (plugin: string) =>
  <T>(hook: string, value: T, rule: keyof typeof hookChecks): T => {
    const fault = hookChecks[rule](value);
    if (fault) throw new Error(`${hook} of ${plugin} returned something else: ${fault}`);
    return value;
  };
