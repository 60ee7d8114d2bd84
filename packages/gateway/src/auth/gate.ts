import type { IncomingHttpHeaders } from 'node:http';
import { GrpcCode } from '@sibyl/grpc-client';
import type { RateVerdict } from '@sibyl/server-kit';
import type { Charge } from '@sibyl/ucan';
import { QueryError } from '../query/query-error.js';

/** Who asks, as far as the deployment wants to know. */
export interface Caller {
  /** What counts towards a limit and stands in the log. */
  readonly name: string;
  /** The address that counts towards limits too, where a name costs nothing; unset for known callers. */
  readonly address: string | undefined;
  /** Requests a minute, where the caller has a limit of its own. */
  readonly perMinute: number | undefined;
  /** When the right to ask ends, in milliseconds of the clock, if it does. */
  readonly expiresAt: number | undefined;
  /** Whether the route of this template is open to the caller. */
  mayQuery(template: string): boolean;
}

/** What a request says about who sent it. */
export interface Credentials {
  readonly headers: IncomingHttpHeaders;
  /** The sender's address as limits count it: an IPv6 address by its /64. */
  readonly address: string;
}

/** Decides who may ask; throws a `QueryError` for those who may not. */
export interface Gate {
  /** `charge` is asked before expensive work; credentials that are cheap to check do not need it. */
  admit(credentials: Credentials, charge: Charge): Caller | Promise<Caller>;
}

/** Nothing, or nothing valid, says who is asking. */
export function unauthenticated(message: string): QueryError {
  const headers = { 'WWW-Authenticate': 'Bearer' };
  return new QueryError(GrpcCode.unauthenticated, message, { headers });
}

/** It is known who asks, and that they may not. */
export function forbidden(message: string): QueryError {
  return new QueryError(GrpcCode.permissionDenied, message);
}

export function tooMany(retryAfterSeconds: number): QueryError {
  const headers = { 'Retry-After': String(retryAfterSeconds) };
  const text = `too many requests; the next may come in ${retryAfterSeconds} s`;
  return new QueryError(GrpcCode.resourceExhausted, text, { headers });
}

/** Throws 429 unless the limit allows the request. */
export function enforce({ allowed, resetSeconds }: RateVerdict): void {
  if (!allowed) throw tooMany(resetSeconds);
}

/** The limit of all callers together. */
export function busy(retryAfterSeconds: number): QueryError {
  const headers = { 'Retry-After': String(retryAfterSeconds) };
  const text = `too many credentials are being checked; try again in ${retryAfterSeconds} s`;
  return new QueryError(GrpcCode.unavailable, text, { headers });
}

/** The token of `Authorization: Bearer …`; undefined if there is none. */
export function readBearer({ authorization }: IncomingHttpHeaders): string | undefined {
  return /^bearer +(\S+)$/i.exec(authorization?.trim() ?? '')?.[1];
}
