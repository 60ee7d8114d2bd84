export { type GatewayProcess, startGateway } from './commands/gateway.js';
export { loadDotEnv } from './environment.js';
