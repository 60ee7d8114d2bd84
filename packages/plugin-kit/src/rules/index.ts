// The rules for plugins that the host and the testing kit share. Plugins import none of it.
export { createTurnEmit } from '../context.js';
export { ModelResponse } from '../middleware.js';
export { isStandardSchema, toJsonSchema } from '../schema.js';
export { createTables } from '../tables/create-tables.js';
export { definitions, runTool } from '../tool.js';
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
  type LoadedPlugin,
  orderPlugins,
  type PluginCandidate,
  type SelectedPlugin,
  type SetupHook,
  type SetupHooks,
  setUpPlugins,
} from './plugin-setup.js';
export { PublicRoutes, SurfaceRoutes, ValidationPipe } from './route-module.js';
