import { type FaultKind, OracleError } from '@sibyl/protocol';
import type { TurnFault } from '../agent/agent.js';
import { ModelFault } from '../agent/model/model-fault.js';
import { isStoreFault } from '../store/store-fault.js';

/** A fault of a turn, with the error that answers a caller who gets no text. */
export type AnsweredFault = TurnFault & { readonly refusal: OracleError };

const RETRY_SECONDS = 5;

/** What ended a turn, as its user is told; undefined for what is a bug. */
export function turnFaultOf(error: unknown): AnsweredFault | undefined {
  if (error instanceof ModelFault) return modelFault(error);
  if (error instanceof OracleError) return refused(error);
  if (!isStoreFault(error)) return undefined;
  return refused(
    new OracleError('store_unavailable', { retryAfterSeconds: RETRY_SECONDS, cause: error }),
  );
}

/** A fault that says nothing of itself to the user. */
export function unexpectedFault(): AnsweredFault {
  const refusal = new OracleError('internal_error', { message: 'The turn failed within the host' });
  return { message: refusal.message, kind: 'unknown', retryable: true, refusal };
}

function modelFault(fault: ModelFault): AnsweredFault {
  const { message, kind, retryable, retryAfterSeconds = RETRY_SECONDS } = fault;
  const refusal = new OracleError('model_unavailable', {
    message,
    // A call that fails again however long one waits is not worth waiting for.
    ...(retryable && { retryAfterSeconds }),
  });
  return { message, kind, retryable, refusal };
}

const kinds: Readonly<Record<number, FaultKind>> = {
  401: 'auth',
  402: 'billing',
  403: 'auth',
  422: 'server',
  429: 'rate_limit',
  503: 'server',
};

/** By a gate, a middleware or a limit, or by the store. */
function refused(refusal: OracleError): AnsweredFault {
  const { status, message } = refusal;
  const retryable = status === 429 || status === 503;
  return { message, kind: kinds[status] ?? 'unknown', retryable, refusal };
}
