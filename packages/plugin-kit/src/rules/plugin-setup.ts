import type { DynamicModule, Type } from '@nestjs/common';
import type { PluginContext } from '../context.js';
import type { PluginManifest } from '../manifest.js';
import type { MessageGate } from '../message-gate.js';
import type { Middleware } from '../middleware.js';
import type { AuthExcludedRoute, OraclePlugin, SharedState } from '../plugin.js';
import type { SubAgent, Tool } from '../tool.js';
import { hookChecks } from './hook-checks.js';

/** A plugin, and what is known of it before it is asked for anything. */
interface KnownPlugin {
  /** For the hooks of each turn: getRequestTools, getRequestSubAgents. */
  readonly plugin: OraclePlugin;
  readonly name: string;
  /** With the operator's overrides and the defaults filled in. */
  readonly manifest: PluginManifest;
  /** Its own variables. */
  readonly config: Readonly<Record<string, unknown>>;
}

/** A plugin that is set up, with all that it brings. */
export interface LoadedPlugin extends KnownPlugin {
  readonly shared: SharedState;
  readonly tools: readonly Tool[];
  readonly subAgents: readonly SubAgent[];
  readonly middlewares: readonly Middleware[];
  readonly gate: MessageGate | undefined;
  readonly nestModules: readonly (Type | DynamicModule)[];
  readonly openRoutes: readonly AuthExcludedRoute[];
}

/** One hook that sets a plugin up, and how to tell whether what it returns can be used. */
export interface SetUpHook<T> {
  readonly hook: string;
  readonly run: () => T | Promise<T> | undefined;
  /** Says what is wrong with the value. */
  readonly check: (value: unknown) => string | undefined;
  /** What counts as the answer where the hook is not there. */
  readonly otherwise: T;
}

/** Asks a plugin once for all that it brings; `call` says what becomes of a hook that fails. */
export async function setUpPlugin(
  { plugin, name, manifest, config }: KnownPlugin,
  context: PluginContext,
  call: <T>(hook: SetUpHook<T>) => Promise<T>,
): Promise<LoadedPlugin> {
  return {
    name,
    manifest,
    config,
    plugin,
    shared: await call({
      hook: 'getSharedState',
      run: () => plugin.getSharedState?.(context),
      check: hookChecks.sharedState,
      otherwise: {},
    }),
    tools: await call({
      hook: 'getTools',
      run: () => plugin.getTools?.(context),
      check: hookChecks.tools,
      otherwise: [],
    }),
    subAgents: await call({
      hook: 'getSubAgents',
      run: () => plugin.getSubAgents?.(context),
      check: hookChecks.subAgents,
      otherwise: [],
    }),
    middlewares: await call({
      hook: 'getMiddlewares',
      run: () => plugin.getMiddlewares?.(context),
      check: hookChecks.middlewares,
      otherwise: [],
    }),
    gate: await call({
      hook: 'getMessageGate',
      run: () => plugin.getMessageGate?.(context),
      check: hookChecks.gate,
      otherwise: undefined,
    }),
    nestModules: await call({
      hook: 'getNestModules',
      run: () => plugin.getNestModules?.(context),
      check: hookChecks.nestModules,
      otherwise: [],
    }),
    openRoutes: await call({
      hook: 'getAuthExcludedRoutes',
      run: () => plugin.getAuthExcludedRoutes?.(),
      check: hookChecks.routes,
      otherwise: [],
    }),
  };
}

/** What the plugins that one depends on share with it. */
export function sharedWith(plugin: OraclePlugin, loaded: readonly LoadedPlugin[]): SharedState {
  const sources = new Set(dependenciesOf(plugin));
  const shared = loaded.filter(({ name }) => sources.has(name)).map((one) => one.shared);
  return Object.freeze(Object.assign({}, ...shared));
}

/** Plugins, each after those it depends on, or a cycle that keeps them from being ordered. */
export type Order =
  | { readonly ordered: readonly OraclePlugin[] }
  | { readonly cycle: readonly string[] };

/** Orders plugins by what they depend on, softly or not; otherwise they stay as they came. */
export function orderPlugins(plugins: readonly OraclePlugin[]): Order {
  const byName = new Map(plugins.map((plugin) => [plugin.name, plugin]));
  const ordered = new Set<OraclePlugin>();
  const visit = (plugin: OraclePlugin, path: readonly string[]): readonly string[] | undefined => {
    if (ordered.has(plugin)) return undefined;
    const start = path.indexOf(plugin.name);
    if (start >= 0) return [...path.slice(start), plugin.name];
    for (const name of dependenciesOf(plugin)) {
      const dependency = byName.get(name);
      const cycle = dependency && visit(dependency, [...path, plugin.name]);
      if (cycle) return cycle;
    }
    ordered.add(plugin);
    return undefined;
  };
  for (const plugin of plugins) {
    const cycle = visit(plugin, []);
    if (cycle) return { cycle };
  }
  return { ordered: [...ordered] };
}

export const dependenciesOf = ({ dependsOn = [], softDependsOn = [] }: OraclePlugin) => [
  ...dependsOn,
  ...softDependsOn,
];

const NAME = /^[a-z][a-z0-9]*(-[a-z0-9]+)*$/;
const MAX_LENGTH = 40;

/** A plugin's users are `did:<name>:<user>`, so it may not have the name of a real DID method. */
const DID_METHODS = ['key', 'ixo', 'web', 'pkh'];

/** A plugin's tables are `<name>_…`, so it may not have a name that the host's own begin with. */
const HOST_TABLES = ['room', 'run', 'single', 'session', 'idempotency', 'kysely'];

const RESERVED: ReadonlySet<string> = new Set([...DID_METHODS, ...HOST_TABLES, 'host', 'main']);

/** What is wrong with a plugin's name, and how to mend it. */
export function nameFault(
  name: unknown,
): { readonly problem: string; readonly remedy: string } | undefined {
  if (typeof name !== 'string' || !NAME.test(name) || name.length > MAX_LENGTH)
    return {
      problem: 'its name is not one',
      remedy: `Name it in lower case, digits and "-", in at most ${MAX_LENGTH} characters`,
    };
  if (RESERVED.has(name))
    return {
      problem: 'its name is reserved',
      remedy: `Name it otherwise than ${[...RESERVED].join(', ')}`,
    };
  return undefined;
}
