import type { RateVerdict } from '@sibyl/server-kit';
import { QueryFault } from '../query/query-fault.js';
import { GrpcCode } from '../upstream/grpc-error.js';

/** Nothing, or nothing valid, says who is asking. */
export function unauthenticated(message: string): QueryFault {
  const headers = { 'WWW-Authenticate': 'Bearer' };
  return new QueryFault(GrpcCode.unauthenticated, message, { headers });
}

/** It is known who asks, and that they may not. */
export function forbidden(message: string): QueryFault {
  return new QueryFault(GrpcCode.permissionDenied, message);
}

export function tooMany(retryAfterSeconds: number): QueryFault {
  const headers = { 'Retry-After': String(retryAfterSeconds) };
  const text = `too many requests; the next may come in ${retryAfterSeconds} s`;
  return new QueryFault(GrpcCode.resourceExhausted, text, { headers });
}

/** Throws 429 unless the limit allows the request. */
export function enforce({ allowed, resetSeconds }: RateVerdict): void {
  if (!allowed) throw tooMany(resetSeconds);
}

/** The limit of all callers together. */
export function busy(retryAfterSeconds: number): QueryFault {
  const headers = { 'Retry-After': String(retryAfterSeconds) };
  const text = `too many credentials are being checked; try again in ${retryAfterSeconds} s`;
  return new QueryFault(GrpcCode.unavailable, text, { headers });
}
