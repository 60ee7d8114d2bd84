import type { DynamicModule, Type } from '@nestjs/common';
import type { AuthExcludedRoute, PluginContext } from '@sibyl/plugin-kit';
import { hookChecks } from '@sibyl/plugin-kit/rules';
import type { LoadedPlugin } from '../turn/loaded-plugin.js';
import type { HookCalls } from './hook-calls.js';
import type { SelectedPlugin } from './select-plugins.js';

/** A plugin that is set up, with what it brings beside its part of turns. */
export interface SetUpPlugin extends LoadedPlugin {
  readonly nestModules: readonly (Type | DynamicModule)[];
  readonly openRoutes: readonly AuthExcludedRoute[];
}

/** Asks a plugin once for all that it brings. */
export async function setUpPlugin(
  { plugin, name, manifest, config }: SelectedPlugin,
  context: PluginContext,
  hooks: HookCalls,
): Promise<SetUpPlugin> {
  return {
    name,
    manifest,
    config,
    plugin,
    shared: await hooks.call({
      hook: 'getSharedState',
      run: () => plugin.getSharedState?.(context),
      check: hookChecks.sharedState,
      otherwise: {},
    }),
    tools: await hooks.call({
      hook: 'getTools',
      run: () => plugin.getTools?.(context),
      check: hookChecks.tools,
      otherwise: [],
    }),
    subAgents: await hooks.call({
      hook: 'getSubAgents',
      run: () => plugin.getSubAgents?.(context),
      check: hookChecks.subAgents,
      otherwise: [],
    }),
    middlewares: await hooks.call({
      hook: 'getMiddlewares',
      run: () => plugin.getMiddlewares?.(context),
      check: hookChecks.middlewares,
      otherwise: [],
    }),
    gate: await hooks.call({
      hook: 'getMessageGate',
      run: () => plugin.getMessageGate?.(context),
      check: hookChecks.gate,
      otherwise: undefined,
    }),
    nestModules: await hooks.call({
      hook: 'getNestModules',
      run: () => plugin.getNestModules?.(context),
      check: hookChecks.nestModules,
      otherwise: [],
    }),
    openRoutes: await hooks.call({
      hook: 'getAuthExcludedRoutes',
      run: () => plugin.getAuthExcludedRoutes?.(),
      check: hookChecks.routes,
      otherwise: [],
    }),
  };
}
