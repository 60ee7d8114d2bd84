import type { ErrorBody } from '@sibyl/protocol';
import { OracleClientError } from '../oracle-client-error.js';

/** The error that a refusing answer stands for (contract B1). */
export async function readRefusal(response: Response): Promise<OracleClientError> {
  const { status } = response;
  const body = await response.json().catch(() => undefined);
  if (!isErrorBody(body)) {
    return new OracleClientError('invalid_reply', `${response.url} answered ${status}`, { status });
  }
  const lines = typeof body.message === 'string' ? [] : body.message;
  const message = typeof body.message === 'string' ? body.message : body.message.join('; ');
  return new OracleClientError(body.code, message, {
    status,
    lines,
    requestId: body.requestId,
    ...retryAfterOf(response),
    ...(body.claims && { claims: body.claims }),
  });
}

function isErrorBody(body: unknown): body is ErrorBody {
  const { code, message } = (body ?? {}) as Partial<ErrorBody>;
  return typeof code === 'string' && (typeof message === 'string' || Array.isArray(message));
}

/** Only what a page of the same origin, or Node, may read. */
function retryAfterOf({ headers }: Response): { readonly retryAfterSeconds?: number } {
  const seconds = Number(headers.get('retry-after') ?? Number.NaN);
  return Number.isFinite(seconds) ? { retryAfterSeconds: seconds } : {};
}
