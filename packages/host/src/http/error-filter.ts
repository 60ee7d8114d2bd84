import { STATUS_CODES } from 'node:http';
import { type ArgumentsHost, Catch, type ExceptionFilter } from '@nestjs/common';
import type { SurfaceRoutes } from '@sibyl/plugin-kit/host';
import { type ErrorBody, OracleError } from '@sibyl/protocol';
import type { Response } from 'express';
import type { Logger } from 'pino';
import type { RateLimits } from '../auth/rate-limits.js';
import type { Metrics } from '../observability/metrics.js';
import type { HostEvents } from '../operators/host-reports.js';
import { toOracleError } from '../store/store-errors.js';
import { explainUnmatched } from './express.js';
import { toErrorBody } from './replies.js';
import type { OracleRequest } from './ucan-guard.js';

/** Turns every error into an HTTP response. */
@Catch()
export class ErrorFilter implements ExceptionFilter {
  constructor(
    private readonly deps: {
      readonly logger: Logger;
      readonly metrics: Metrics;
      readonly hostEvents: HostEvents;
      readonly rateLimits: RateLimits;
      readonly surfaceRoutes: SurfaceRoutes;
    },
  ) {}

  catch(error: unknown, host: ArgumentsHost): void {
    const http = host.switchToHttp();
    const response = http.getResponse<Response>();
    const request = http.getRequest<OracleRequest>();
    const fault = this.countUnproven(request, response) ?? explain(error, request, response);
    const answer = this.toAnswer(fault, request.requestId);
    const { statusCode: status, code, message } = answer.body;
    this.deps.metrics.count('sibyl_errors_total', { code });
    this.deps.hostEvents.recordError(code, status, request.caller?.did);
    if (response.headersSent) return void response.destroy();
    if (answer.retryAfterSeconds) response.setHeader('Retry-After', answer.retryAfterSeconds);
    const formatError = request.formatError ?? this.findErrorFormat(request, code);
    // Clients of other protocols look for it; the host's own routes state in the body what is missing.
    if (status === 401 && formatError) response.setHeader('WWW-Authenticate', 'Bearer');
    const described = { status, code, message: [message].flat().join('; ') };
    const body = formatError?.(described) ?? answer.body;
    if (typeof body === 'string') response.status(status).type('text').send(body);
    else response.status(status).json(body);
  }

  /** Of an error before the guards, which has not reached a route: other methods, unknown paths, and limits. */
  private findErrorFormat(request: OracleRequest, code: string) {
    const { surfaceRoutes } = this.deps;
    const { formatError } = surfaceRoutes.find(request.path) ?? {};
    if (formatError || code !== 'not_found' || 'formatError' in request) return formatError;
    return surfaceRoutes.findErrorFormatBeside(request.path);
  }

  /** Counts a request that no guard has counted; returns the error if it is beyond the limit. */
  private countUnproven(request: OracleRequest, response: Response): unknown {
    if (request.isCounted) return undefined;
    request.isCounted = true;
    try {
      this.deps.rateLimits.takeAnonymous(request.ip, response.headersSent ? undefined : response);
      return undefined;
    } catch (refusal) {
      return refusal;
    }
  }

  private toAnswer(error: unknown, requestId: string) {
    const known = isHttpException(error) ? toHttpExceptionBody(error) : toOracleError(error);
    if (!(known instanceof OracleError)) return { body: { ...known, requestId } };
    if (known.status >= 500) this.report(error, known, requestId);
    return {
      body: toErrorBody(known, requestId),
      retryAfterSeconds: known.retryAfterSeconds,
    };
  }

  /** Without a stack if the store is unavailable: every request has the same one. */
  private report(error: unknown, known: OracleError, requestId: string): void {
    if (known.status === 503) {
      const reason = error instanceof Error ? error.message : String(error);
      this.deps.logger.warn({ requestId, code: known.code, reason }, known.message);
    } else this.deps.logger.error({ requestId, err: error }, known.message);
  }
}

/** Names the allowed methods if a route has this path but not this method; a client that left is not an outage. */
function explain(error: unknown, request: OracleRequest, response: Response): unknown {
  if (error instanceof Error && error === request.errored) return new OracleError('bad_request');
  return isUnknownRoute(error) ? explainUnmatched(request, response) : error;
}

interface HttpExceptionLike {
  readonly message: string;
  getStatus(): number;
  getResponse(): unknown;
}

/** By shape, not by class: a plugin may have its own copy of Nest. */
function isHttpException(error: unknown): error is HttpExceptionLike {
  const { getStatus, getResponse } = (error ?? {}) as Partial<HttpExceptionLike>;
  return typeof getStatus === 'function' && typeof getResponse === 'function';
}

/** Nest's own error if no route matches. */
function isUnknownRoute(error: unknown): boolean {
  return (
    isHttpException(error) && error.getStatus() === 404 && /^Cannot [A-Z]+ /.test(error.message)
  );
}

function toHttpExceptionBody(error: HttpExceptionLike): Omit<ErrorBody, 'requestId'> {
  const statusCode = error.getStatus();
  const response = error.getResponse();
  const phrase = STATUS_CODES[statusCode] ?? 'Error';
  const fields = typeof response === 'object' && response !== null ? response : {};
  return {
    message: error.message,
    code: phrase.toLowerCase().replaceAll(/[^a-z]+/g, '_'),
    ...fields,
    error: phrase,
    statusCode,
  };
}
