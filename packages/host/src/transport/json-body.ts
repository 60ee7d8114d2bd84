import { OracleError } from '@sibyl/protocol';
import { json, type NextFunction, type Request, type Response } from 'express';

/** Parses JSON bodies up to the limit; an empty body is no fault (contract B1). */
export function jsonBody(limit: number) {
  const parse = json({ limit, strict: true });
  return (request: Request, response: Response, next: NextFunction): void => {
    parse(request, response, (fault?: unknown) => next(fault ? oracleErrorOf(fault) : undefined));
  };
}

/** Body-parser tells its faults apart by `type`. */
function oracleErrorOf(fault: unknown): OracleError {
  const { type, message } = fault as { type?: string; message?: string };
  switch (type) {
    case 'entity.too.large':
      return new OracleError('body_too_large');
    case 'entity.parse.failed':
      return new OracleError('invalid_json', { message: `The body is not valid JSON: ${message}` });
    case 'charset.unsupported':
    case 'encoding.unsupported':
      return new OracleError('unsupported_media_type');
    default:
      return new OracleError('bad_request', { cause: fault });
  }
}
