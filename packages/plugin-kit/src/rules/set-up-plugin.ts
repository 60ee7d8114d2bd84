import type { DynamicModule, Type } from '@nestjs/common';
import type { PluginManifest } from '../manifest.js';
import type { MessageGate } from '../message-gate.js';
import type { Middleware } from '../middleware.js';
import type { AuthExcludedRoute, OraclePlugin, SharedState } from '../plugin.js';
import type { PluginContext } from '../plugin-context.js';
import type { SubAgent } from '../sub-agent.js';
import type { Tool } from '../tool.js';
import { hookChecks } from './hook-checks.js';
import { dependenciesOf } from './order-plugins.js';

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
