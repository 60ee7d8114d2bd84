import type { NextFunction, Response } from 'express';
import type { Logger } from 'pino';
import type { OracleRequest } from '../auth/oracle-request.js';
import type { Metrics } from '../observe/metrics.js';
import { isHealth } from './security-headers.js';

/** Writes one line per request; never a header, a body or a query, since tokens travel there. */
export function accessLog(logger: Logger, metrics: Metrics) {
  return (request: OracleRequest, response: Response, next: NextFunction): void => {
    const startedAt = performance.now();
    response.once('close', () => {
      const line = {
        requestId: request.requestId,
        did: request.caller?.did,
        method: request.method,
        route: routeOf(request),
        status: response.statusCode,
        ms: Math.round((performance.now() - startedAt) * 10) / 10,
      };
      const { method, route, status } = line;
      metrics.count('sibyl_http_requests_total', { method, route, status: String(status) });
      if (!response.writableFinished) logger.info(line, 'request cut off');
      else if (isHealth(request)) logger.debug(line, 'request');
      else logger.info(line, 'request');
    });
    next();
  };
}

function routeOf(request: OracleRequest): string {
  const pattern: unknown = request.route?.path;
  return typeof pattern === 'string' ? pattern : 'unmatched';
}
