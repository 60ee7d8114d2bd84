export { createOracleApp, type OracleApp, type OracleAppOptions } from './app/create-oracle-app.js';
export { BootError } from './config/boot-error.js';
export { type Config, loadConfig } from './config/config.js';
