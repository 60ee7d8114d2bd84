export { createOracleApp, type OracleApp, type OracleAppOptions } from './app/create-oracle-app.js';
export { type Config, ConfigError, loadConfig } from './config/config.js';
