import type { NestExpressApplication } from '@nestjs/platform-express';
import { corsExposedHeaders, corsMethods, corsRequestHeaders } from '@sibyl/protocol';
import type { Config } from '../config/config.js';
import { accessLog } from '../transport/access-log.js';
import { answerOptions } from '../transport/allowed-methods.js';
import { anonymousLimit } from '../transport/anonymous-limit.js';
import { requestId } from '../transport/request-id.js';
import { securityHeaders } from '../transport/security-headers.js';
import type { HostParts } from './host-parts.js';

/** What every request passes before a route, in this order. */
export function useMiddlewares(
  nest: NestExpressApplication,
  { logger, metrics, rateLimits }: HostParts,
  { trustProxy, corsOrigins }: Config,
): void {
  nest.disable('x-powered-by');
  nest.disable('etag');
  if (trustProxy !== undefined) nest.set('trust proxy', trustProxy);
  nest.use(requestId);
  nest.use(accessLog(logger, metrics));
  nest.use(securityHeaders);
  nest.enableCors({ ...corsOptions(corsOrigins), preflightContinue: true });
  nest.use(answerOptions);
  nest.use(anonymousLimit(rateLimits));
}

/** Only named origins may send credentials. */
export function corsOptions(origins: readonly string[]) {
  const isOpen = origins.includes('*');
  return {
    origin: isOpen ? '*' : [...origins],
    credentials: !isOpen,
    allowedHeaders: [...corsRequestHeaders],
    exposedHeaders: [...corsExposedHeaders],
    methods: [...corsMethods],
    maxAge: 600,
  };
}
