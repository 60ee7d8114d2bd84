// What only the host uses. It shares the rules for plugins with the testing kit; plugins import none of it.
export type {
  Blobs,
  ClientCalls,
  MintRequest,
  SessionState,
  TurnCondition,
  TurnEmit,
  TurnState,
  TurnUcan,
  WantedCapability,
} from '../context.js';
export { PluginManifest, Visibility } from '../manifest.js';
export { ModelResponse } from '../middleware.js';
export type {
  MediaPart,
  ModelRole,
  ModelTool,
  ModelToolCall,
  ModelToolResult,
  ModelUsage,
} from '../model.js';
export type { AuthExcludedRoute, Feature } from '../plugin.js';
export {
  ACCESS_KEY_ROUTE,
  ORIGIN_CHECKED_ROUTE,
  OWN_KEY_ROUTE,
  ROUTE_DESCRIPTION,
  ROUTE_ERROR_FORMAT,
  type RouteDescription,
  WORK_ROUTE,
} from '../routes.js';
export { isStandardSchema, type ToolSchema, toJsonSchema } from '../schema.js';
export { createTables } from '../tables/create-tables.js';
export { definitions, runTool } from '../tool.js';
export type { DelegatedTurn } from '../turns.js';
export {
  checkPluginMembers,
  checkPluginName,
  checkPluginObject,
  checkSubAgent,
  checkTool,
  hookChecks,
} from './hook-checks.js';
export { getTablePrefix, OwnTables } from './own-tables.js';
export {
  createShared,
  createTurnEmit,
  type LoadedPlugin,
  meetsCondition,
  orderPlugins,
  type PluginCandidate,
  type SelectedPlugin,
  type SetupHook,
  type SetupHooks,
  setUpPlugins,
} from './plugin-setup.js';
export { PublicRoutes, SurfaceRoutes, ValidationPipe } from './route-module.js';
