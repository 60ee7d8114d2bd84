import { randomUUID } from 'node:crypto';
import { RequestId } from '@sibyl/protocol';
import type { NextFunction, Response } from 'express';
import type { OracleRequest } from '../auth/oracle-request.js';

/** Gives every request its correlation id: the caller's own if well-formed (contract B1). */
export function requestId(request: OracleRequest, response: Response, next: NextFunction): void {
  const { data = randomUUID() } = RequestId.safeParse(request.headers['x-request-id']);
  request.requestId = data;
  response.setHeader('X-Request-Id', data);
  next();
}

/** Takes the id that a body brings for the request's own, unless a header said otherwise. */
export function adoptRequestId(
  request: OracleRequest,
  response: Response,
  id: string | undefined,
): void {
  if (!id || request.header('x-request-id')) return;
  request.requestId = id;
  response.setHeader('X-Request-Id', id);
}
