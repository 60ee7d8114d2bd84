export { type GatewayProcess, startGateway } from './commands/gateway.js';
