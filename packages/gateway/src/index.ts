export { GrpcCode, toHttpStatus } from '@sibyl/grpc-client';
export { type Config, ConfigError, loadConfig } from './config/config.js';
export type { ApiKey, UpstreamAddress } from './config/environment.js';
export { Environment } from './config/environment.js';
export { createGateway, type Gateway, type GatewayOptions } from './create-gateway.js';
export type { Logger } from './observe/metrics.js';
export { serve } from './serve.js';
