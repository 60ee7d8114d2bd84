import type { IncomingHttpHeaders } from 'node:http';
import { GrpcCode } from '@sibyl/grpc-client';
import type { RateVerdict } from '@sibyl/server-kit';
import type { VerifyOptions } from '@sibyl/ucan';
import { QueryError } from '../query/query-error.js';

/** An identified caller. */
export interface Caller {
  /** Identifies the caller in limits and logs. */
  readonly name: string;
  /** An address that is limited as well, where names are free to create; unset for known callers. */
  readonly address: string | undefined;
  /** Requests per minute, if the caller has an individual limit. */
  readonly perMinute: number | undefined;
  /** When the credentials expire, in Unix milliseconds, if they do. */
  readonly expiresAt: number | undefined;
  /** Whether the caller may query the route with this template. */
  mayQuery(template: string): boolean;
}

/** The key for limits on memory: callers whose names are free to create share that of their address. */
export const getMemoryKey = ({ name, address }: Caller) => address ?? name;

/** The credentials of a request. */
export interface Credentials {
  readonly headers: IncomingHttpHeaders;
  /** The address as rate limit key: IPv6 addresses by their /64. */
  readonly address: string;
}

/** Authenticates callers; throws a `QueryError` for invalid credentials. */
export interface Gate {
  /** Passes `cost` on to a verifier, which calls it before expensive work. */
  admit(credentials: Credentials, cost: VerifyOptions): Caller | Promise<Caller>;
}

/** Credentials are missing or invalid. */
export function unauthenticated(message: string): QueryError {
  const headers = { 'WWW-Authenticate': 'Bearer' };
  return new QueryError(GrpcCode.unauthenticated, message, { headers });
}

/** The caller is known and not allowed. */
export function forbidden(message: string): QueryError {
  return new QueryError(GrpcCode.permissionDenied, message);
}

export function tooMany(retryAfterSeconds: number): QueryError {
  const headers = { 'Retry-After': String(retryAfterSeconds) };
  const text = `too many requests; try again in ${retryAfterSeconds} s`;
  return new QueryError(GrpcCode.resourceExhausted, text, { headers });
}

/** Throws 429 unless the limit allows the request. */
export function enforce({ allowed, resetSeconds }: RateVerdict): void {
  if (!allowed) throw tooMany(resetSeconds);
}

/** The limit for all callers together is reached. */
export function busy(retryAfterSeconds: number): QueryError {
  const headers = { 'Retry-After': String(retryAfterSeconds) };
  const text = `too many credentials are being checked; try again in ${retryAfterSeconds} s`;
  return new QueryError(GrpcCode.unavailable, text, { headers });
}

/** The token of `Authorization: Bearer …`; undefined if there is none. */
export function readBearer({ authorization }: IncomingHttpHeaders): string | undefined {
  return /^bearer +(\S+)$/i.exec(authorization?.trim() ?? '')?.[1];
}
