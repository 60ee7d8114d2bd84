import type { NextFunction, Response } from 'express';
import { credentialsOf } from '../auth/credentials.js';
import type { OracleRequest } from '../auth/oracle-request.js';
import type { RateLimits } from '../auth/rate-limits.js';
import { isDocs, isHealth } from './security-headers.js';

/** Limits each address by what it asks without proving who it is; health checks are exempt. */
export function anonymousLimit(limits: RateLimits) {
  return (request: OracleRequest, response: Response, next: NextFunction): void => {
    const isExempt = isHealth(request);
    // With credentials the guard decides: a valid caller must not suffer from its neighbors. The error
    // filter counts requests that fail before they reach it.
    request.isCounted = isExempt || isDocs(request) || !hasCredentials(request);
    if (request.isCounted && !isExempt) limits.takeAnonymous(request.ip, response);
    next();
  };
}

function hasCredentials({ headers }: OracleRequest): boolean {
  const { invocation, delegation } = credentialsOf(headers);
  return invocation !== undefined || delegation !== undefined;
}
