export { ConfigError } from '@sibyl/server-kit/environment';
export { backUpStore, type CopiedStore, migrateStore, restoreStore } from './app/backup-restore.js';
export { grantCredits } from './app/bundled-plugins.js';
export {
  createOracleApp,
  describePlugins,
  diagnosePlugins,
  type OracleApp,
  type OracleAppOptions,
} from './app/create-oracle-app.js';
export {
  changeBlocked,
  changeOperators,
  checkKey,
  checkModel,
  checkStore,
  createInvitations,
  listAudit,
  listCallers,
  listOperators,
  listUsers,
  type PrintedInvitation,
  removeCaller,
  showRetention,
} from './app/operator-tasks.js';
export { createPluginFetch } from './app/outgoing.js';
export { type Config, loadConfig } from './config/config.js';
export type { PluginStatus } from './plugins/select-plugins.js';
export { serve } from './serve.js';
