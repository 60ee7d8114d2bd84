import type { NextFunction, Response } from 'express';
import { credentialsOf } from '../auth/credentials.js';
import type { OracleRequest } from '../auth/oracle-request.js';
import type { RateLimits } from '../auth/rate-limits.js';

/** Limits each address by what it asks without proving who it is; `/health` is exempt. */
export function anonymousLimit(limits: RateLimits) {
  return async (request: OracleRequest, response: Response, next: NextFunction): Promise<void> => {
    if (request.path === '/health') return next();
    response.once('close', () => {
      if (!request.caller) void limits.countAnonymous(request.ip);
    });
    // With credentials the guard decides: a valid caller must not suffer from its neighbours.
    if (!hasCredentials(request)) await limits.checkAnonymous(request.ip, response);
    next();
  };
}

function hasCredentials({ headers }: OracleRequest): boolean {
  const { invocation, delegation } = credentialsOf(headers);
  return invocation !== undefined || delegation !== undefined;
}
