import { OracleError } from '@sibyl/plugin-kit';

/** Shorter than the host waits for a plugin before it goes on without its middleware. */
const PATIENCE_MS = 12_000;

/** Refuses the turn where the ledger fails or hangs: a host goes on without a middleware that does, and nobody would pay. */
export async function orRefuse<T>(work: Promise<T>): Promise<T> {
  const { promise: tooLate, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(reject, PATIENCE_MS, new Error('The ledger did not answer in time'));
  try {
    return await Promise.race([work, tooLate]);
  } catch (cause) {
    if (cause instanceof OracleError) throw cause;
    throw new OracleError('store_unavailable', { cause, retryAfterSeconds: 5 });
  } finally {
    clearTimeout(timer);
  }
}
