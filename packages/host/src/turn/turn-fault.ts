import { type FaultKind, OracleError } from '@sibyl/protocol';
import type { TurnFault } from '../agent/agent.js';
import { ModelFault } from '../agent/model/model-fault.js';
import { isStoreFault } from '../store/store-fault.js';

/** What ended a turn, as its user is told; undefined for what is a bug. */
export function turnFaultOf(error: unknown): TurnFault | undefined {
  if (error instanceof ModelFault) return error;
  if (isStoreFault(error)) {
    return refused(new OracleError('store_unavailable', { retryAfterSeconds: 5, cause: error }));
  }
  return error instanceof OracleError ? refused(error) : undefined;
}

const kinds: Readonly<Record<number, FaultKind>> = {
  401: 'auth',
  402: 'billing',
  403: 'auth',
  429: 'rate_limit',
  503: 'server',
};

/** By a gate or a middleware, or by the store. */
function refused(refusal: OracleError): TurnFault {
  const { status, message } = refusal;
  const retryable = status === 429 || status === 503;
  return { message, kind: kinds[status] ?? 'unknown', retryable, refusal };
}
