export { type GatewayProcess, startGateway } from './gateway/gateway-process.js';
