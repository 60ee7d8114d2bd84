export { grantCredits } from './app/bundled-plugins.js';
export {
  createOracleApp,
  describePlugins,
  type OracleApp,
  type OracleAppOptions,
} from './app/create-oracle-app.js';
export { createPluginFetch } from './app/create-plugin-fetch.js';
export {
  checkKey,
  checkModel,
  checkStore,
  createInvitations,
  listCallers,
  type PrintedInvitation,
  removeCaller,
} from './app/operator-tasks.js';
export { BootError } from './config/boot-error.js';
export { type Config, loadConfig } from './config/config.js';
export type { PluginStatus } from './plugin-loader/plugin-status.js';
export { serve } from './serve.js';
