import { PluginManifest } from '../manifest.js';
import type { OraclePlugin } from '../plugin.js';
import type { EarlyPluginContext } from '../plugin-context.js';
import type { RoomState } from '../room-state.js';
import { orderPlugins } from '../rules/order-plugins.js';
import { nameFault } from '../rules/plugin-name.js';
import {
  type LoadedPlugin,
  type SetUpHook,
  setUpPlugin,
  sharedWith,
} from '../rules/set-up-plugin.js';
import { openMemoryDatabase, openPluginTables } from './memory-database.js';
import type { TestWorld } from './test-world.js';

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
