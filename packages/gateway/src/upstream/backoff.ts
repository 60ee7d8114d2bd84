import type { GrpcError } from './grpc-error.js';

const FIRST_MS = 100;
const LONGEST_MS = 5000;

/** Keeps a node that cannot be reached from being tried all the time. */
export class Backoff {
  private failures = 0;
  private fault: GrpcError | undefined;
  private retryAt = 0;

  /** Why the last attempt failed, while it is too early for another. */
  lastFault(): GrpcError | undefined {
    return performance.now() < this.retryAt ? this.fault : undefined;
  }

  failed(fault: GrpcError): GrpcError {
    const waitMs = Math.min(LONGEST_MS, FIRST_MS * 2 ** this.failures);
    this.failures += 1;
    this.fault = fault;
    // Several gateways that lost the same node come back one after the other.
    this.retryAt = performance.now() + waitMs * (0.5 + Math.random() / 2);
    return fault;
  }

  succeeded(): void {
    this.failures = 0;
    this.fault = undefined;
    this.retryAt = 0;
  }
}
