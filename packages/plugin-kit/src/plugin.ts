import type { DynamicModule, RequestMethod, Type } from '@nestjs/common';
import type { Tool } from './tool.js';

/** A route a plugin opens to callers without a UCAN: a path, or a path and its method. */
export type AuthExcludedRoute = string | { readonly path: string; readonly method?: RequestMethod };

/** A unit of the host that can be switched off: its tools, its routes, the paths it opens. */
export interface OraclePlugin {
  readonly name: string;
  getTools?(): readonly Tool[];
  getNestModules?(): readonly (Type | DynamicModule)[];
  getAuthExcludedRoutes?(): readonly AuthExcludedRoute[];
}

/** Gives a plain object the plugin's type. */
export const definePlugin = (plugin: OraclePlugin): OraclePlugin => plugin;
