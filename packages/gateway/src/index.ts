export type { ApiKey } from './config/api-key.js';
export { type Config, ConfigError, loadConfig } from './config/config.js';
export { Environment } from './config/environment.js';
export type { UpstreamAddress } from './config/upstream-url.js';
export { createGateway, type Gateway, type GatewayOptions } from './create-gateway.js';
export type { Logger } from './observe/logger.js';
export { serve } from './serve.js';
export { GrpcCode, httpStatusOf } from './upstream/grpc-error.js';
