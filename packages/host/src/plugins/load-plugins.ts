import type { PluginDatabase } from '@sibyl/plugin-kit';
import { type LoadedPlugin, type PluginCandidate, setUpPlugins } from '@sibyl/plugin-kit/host';
import { withTimeout } from '@sibyl/server-kit';
import { ConfigError } from '@sibyl/server-kit/environment';
import type { Logger } from 'pino';
import { RESERVED_TOOLS } from '../turns/plugins/capabilities.js';
import { createSetupContext, HookCalls, type HostServices } from './plugin-context.js';
import {
  createPluginIssue,
  describeError,
  type SelectedPlugin,
  switchOff,
} from './select-plugins.js';

/** The plugins, set up. */
export interface LoadedPlugins {
  /** In the order of their dependencies. */
  readonly plugins: readonly LoadedPlugin[];
  /** Runs the close tasks of all plugins. */
  close(): Promise<void>;
}

interface Candidate extends PluginCandidate {
  readonly hooks: HookCalls;
}

/** Sets up the selected plugins; throws the issues of all of them together. */
export async function loadPlugins(
  selected: readonly SelectedPlugin[],
  services: HostServices,
): Promise<LoadedPlugins> {
  const closing = new CloseTasks(services.logger);
  try {
    const candidates = await openAll(selected, services, closing);
    assertNoIssues(candidates);
    const rooms = services.store.roomState.of(services.oracle.did);
    const plugins = await setUpPlugins(candidates, rooms);
    claimNames(plugins, candidates);
    assertNoIssues(candidates);
    return { plugins, close: () => closing.run() };
  } catch (error) {
    await closing.run();
    throw error;
  }
}

function assertNoIssues(candidates: readonly Candidate[]): void {
  const issues = candidates.flatMap(({ hooks }) => hooks.issues);
  if (issues.length > 0) throw new ConfigError('host', issues);
}

/** Migrates the tables of all plugins before any of them is set up. */
async function openAll(
  selected: readonly SelectedPlugin[],
  services: HostServices,
  closing: CloseTasks,
): Promise<Candidate[]> {
  const names = selected.map(({ name }) => name);
  const candidates: Candidate[] = [];
  for (const one of selected) {
    const hooks = new HookCalls(one.name);
    const database = await openTables(one, names, services).catch((error) => {
      hooks.fail(`its tables could not be created: ${describeError(error)}`);
      return undefined;
    });
    const context = createSetupContext(
      { selected: one, database: database as PluginDatabase, availablePlugins: new Set(names) },
      services,
    );
    const onClose: Candidate['onClose'] = (run) => closing.add({ plugin: one.name, run });
    candidates.push({ selected: one, hooks, context, onClose });
  }
  return candidates;
}

function openTables(
  { name, plugin }: SelectedPlugin,
  plugins: readonly string[],
  { store }: HostServices,
): Promise<PluginDatabase> {
  const { tables, migrations } = plugin;
  return store.pluginTables.open({ plugin: name, tables, migrations, plugins });
}

/** An error of Nest as an issue of the plugin whose module it names; otherwise unchanged. */
export function toModuleError(error: unknown, plugins: readonly LoadedPlugin[]): unknown {
  if (error instanceof ConfigError) return error;
  const reason = describeError(error).split('\n', 1)[0] ?? '';
  const plugin = plugins.find(({ nestModules }) =>
    nestModules.some((module) => isNamedIn(reason, 'module' in module ? module.module : module)),
  );
  if (!plugin) return error;
  const problem = `its Nest modules could not be built: ${reason}`;
  return new ConfigError('host', [
    createPluginIssue(plugin.name, problem, `Fix it, or ${switchOff(plugin.name)}`),
  ]);
}

/** Throws if two routes have the same method and path: one could not be reached, and if the other is public, it would be as well. */
export function assertDistinctRoutes(
  served: readonly RouteName[],
  plugins: readonly LoadedPlugin[],
): void {
  const groups = Map.groupBy(served, formatRoute);
  const issues = [...groups].flatMap(([name, { length }]) => {
    if (length === 1) return [];
    const own = plugins
      .flatMap(({ name: plugin, routes }) => routes.map((route) => ({ plugin, ...route })))
      .findLast((route) => formatRoute(route) === name);
    if (!own)
      return {
        subject: 'routes',
        problem: `two modules have ${name}`,
        remedy: 'Change one of them',
      };
    const problem = `its route ${own.method} ${own.path} exists already`;
    return createPluginIssue(own.plugin, problem, 'Change its path');
  });
  if (issues.length > 0) throw new ConfigError('host', issues);
}

interface RouteName {
  readonly method: string;
  readonly path: string;
}

/** Express ignores case, a slash at the end, and the names of parameters and wildcards. */
const formatRoute = ({ method, path }: RouteName) =>
  `${method} ${path
    .replace(/(.)\/$/, '$1')
    .replaceAll(/([:*])\w+/g, '$1')
    .toLowerCase()}`;

const isNamedIn = (text: string, { name }: { readonly name: string }) =>
  name !== '' && text.includes(name);

function claimNames(plugins: readonly LoadedPlugin[], candidates: readonly Candidate[]): void {
  const claims = new NameClaims();
  for (const { selected, hooks } of candidates) {
    const plugin = plugins.find(({ name }) => name === selected.name);
    if (plugin) claims.claim(plugin, hooks);
  }
}

/** Makes sure that the names of tools and shared keys are unique. */
class NameClaims {
  private readonly tools = new Map([...RESERVED_TOOLS].map((name) => [name, 'the host']));
  private readonly shared = new Map<string, string>();

  /** Claims all names of a plugin; a name that is taken is an issue of this plugin. */
  claim({ name, tools, subAgents, shared }: LoadedPlugin, hooks: HookCalls): void {
    const owner = `the plugin ${name}`;
    for (const tool of tools) this.take(this.tools, owner, tool.name, hooks);
    for (const agent of subAgents) this.take(this.tools, owner, `call_${agent.name}_agent`, hooks);
    for (const key of Object.keys(shared)) this.takeShared(owner, key, hooks);
  }

  private take(names: Map<string, string>, owner: string, tool: string, hooks: HookCalls): void {
    const taken = names.get(tool);
    if (taken)
      hooks.fail(
        `its tool ${tool} is called like one of ${taken}`,
        'Rename the tool, or switch one of the two off',
      );
    else names.set(tool, owner);
  }

  private takeShared(owner: string, key: string, hooks: HookCalls): void {
    const taken = this.shared.get(key);
    if (taken)
      hooks.fail(
        `it shares ${key}, which ${taken} shares already`,
        'Rename the key, or switch one of the two off',
      );
    else this.shared.set(key, owner);
  }
}

const LIMIT = { ms: 5000, message: 'it takes too long' };

interface CloseTask {
  readonly plugin: string;
  readonly run: () => void | Promise<void>;
}

/** What plugins do when the host closes. */
class CloseTasks {
  private readonly tasks: CloseTask[] = [];

  constructor(private readonly logger: Logger) {}

  add(task: CloseTask): void {
    this.tasks.push(task);
  }

  /** Runs all tasks, the last first, even if some fail or hang. */
  async run(): Promise<void> {
    for (const { plugin, run } of this.tasks.splice(0).reverse()) {
      await withTimeout(LIMIT, async () => run()).catch((err) =>
        this.logger.warn({ err, plugin }, 'a plugin failed to close'),
      );
    }
  }
}
