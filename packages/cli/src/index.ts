export { type GatewayProcess, startGateway } from './commands/start.js';
export { loadDotEnv } from './environment.js';
