import type { DynamicModule, RequestMethod, Type } from '@nestjs/common';
import type { z } from 'zod';
import type {
  EarlyPluginContext,
  PluginContext,
  PluginMigrations,
  RoomState,
  TurnContext,
} from './context.js';
import type { PluginManifestInput } from './manifest.js';
import type { MessageGate } from './message-gate.js';
import type { Middleware } from './middleware.js';
import type { SubAgent, Tool } from './tool.js';

/** A route a plugin opens to callers without a UCAN: a path, or a path and its method. */
export type AuthExcludedRoute = string | { readonly path: string; readonly method?: RequestMethod };

/** The plugin's own part of the environment, as it is: the variables its `configSchema` names. */
export type PluginEnv = Readonly<Record<string, string | undefined>>;

/** A value shared as it is, or a function that is asked once at the start of each turn. */
export type SharedState = Readonly<Record<string, unknown>>;

/** Whether a plugin loads: always, never, or when it finds what it needs. */
export type Feature = boolean | 'auto';

type Awaitable<T> = T | Promise<T>;

/** A unit of the host that can be switched off. Hooks are called as methods, so a class does as well. */
export interface OraclePlugin<ConfigSchema extends z.ZodObject = z.ZodObject> {
  /** Lower case, digits and `-`. */
  readonly name: string;
  readonly version: string;
  readonly manifest: PluginManifestInput;
  /** Plugins it cannot do without. */
  readonly dependsOn?: readonly string[];
  /** Plugins it works better with; they are set up first if they are loaded. */
  readonly softDependsOn?: readonly string[];
  /** The variables it reads; all of the environment's faults are reported together. */
  readonly configSchema?: ConfigSchema;
  /** Whether the environment has what it needs; asked only while its feature is `auto`, the default. */
  autoDetect?(env: PluginEnv): boolean;
  /** Says what to set so that it loads. */
  readonly autoDetectHint?: string;
  /** Its tables. */
  readonly migrations?: PluginMigrations;

  /** Tools every turn has. */
  getTools?(context: PluginContext<z.output<ConfigSchema>>): Awaitable<readonly Tool[]>;
  /** Tools of this turn alone. */
  getRequestTools?(turn: TurnContext<z.output<ConfigSchema>>): Awaitable<readonly Tool[]>;
  getSubAgents?(context: PluginContext<z.output<ConfigSchema>>): Awaitable<readonly SubAgent[]>;
  getRequestSubAgents?(turn: TurnContext<z.output<ConfigSchema>>): Awaitable<readonly SubAgent[]>;
  getMiddlewares?(context: PluginContext<z.output<ConfigSchema>>): Awaitable<readonly Middleware[]>;
  /** What other plugins may use; each key belongs to one plugin. */
  getSharedState?(context: PluginContext<z.output<ConfigSchema>>): Awaitable<SharedState>;
  getNestModules?(
    context: PluginContext<z.output<ConfigSchema>>,
  ): Awaitable<readonly (Type | DynamicModule)[]>;
  getAuthExcludedRoutes?(): readonly AuthExcludedRoute[];
  getMessageGate?(context: PluginContext<z.output<ConfigSchema>>): Awaitable<MessageGate>;
  /** Keeps the rooms' state elsewhere than in the store; at most one plugin does. */
  getRoomState?(
    context: EarlyPluginContext<z.output<ConfigSchema>>,
  ): Awaitable<RoomState | undefined>;
}

/** Gives a plain object the plugin's type. */
export const definePlugin = <ConfigSchema extends z.ZodObject>(
  plugin: OraclePlugin<ConfigSchema>,
): OraclePlugin => plugin as unknown as OraclePlugin;
