import { GrpcCode } from '@sibyl/grpc-client';
import { QueryError } from '../query/query-error.js';

const RETRY_SECONDS = '5';

export interface ByteLimits {
  /** Limit for all callers together. */
  readonly maxBytes: number;
  readonly maxBytesPerCaller: number;
}

interface Shared {
  readonly release: () => void;
  holders: number;
}

/** Limits the memory of requests in progress, per caller and in total. */
export class ByteBudget {
  private readonly byCaller = new Map<string, number>();
  private readonly shared = new Map<object, Shared>();
  private bytes = 0;

  constructor(private readonly limits: ByteLimits) {}

  /** The bytes currently reserved. */
  get used(): number {
    return this.bytes;
  }

  /**
   * Reserves memory and returns the function that releases it, which may be called more than once. Throws
   * 429 if the caller exceeds its limit, 503 if all callers together do.
   */
  reserve(caller: string, bytes: number): () => void {
    const held = (this.byCaller.get(caller) ?? 0) + bytes;
    if (held > this.limits.maxBytesPerCaller) throw callerHoldsTooMuch();
    if (this.bytes + bytes > this.limits.maxBytes) throw allHoldTooMuch();
    this.byCaller.set(caller, held);
    this.bytes += bytes;
    let isHeld = true;
    return () => {
      if (isHeld) this.release(caller, bytes);
      isHeld = false;
    };
  }

  /** Reserves a buffer that several requests send: it counts once, for the first caller. */
  reserveShared(caller: string, memory: Uint8Array): () => void {
    const known = this.shared.get(memory);
    const shared = known ?? { release: this.reserve(caller, memory.length), holders: 0 };
    if (!known) this.shared.set(memory, shared);
    shared.holders += 1;
    let isHeld = true;
    return () => {
      if (isHeld) this.leave(memory, shared);
      isHeld = false;
    };
  }

  private leave(memory: Uint8Array, shared: Shared): void {
    shared.holders -= 1;
    if (shared.holders > 0) return;
    this.shared.delete(memory);
    shared.release();
  }

  private release(caller: string, bytes: number): void {
    this.bytes -= bytes;
    const left = (this.byCaller.get(caller) ?? 0) - bytes;
    if (left > 0) this.byCaller.set(caller, left);
    else this.byCaller.delete(caller);
  }
}

function callerHoldsTooMuch(): QueryError {
  const text = `your requests in progress hold too much memory; try again in ${RETRY_SECONDS} seconds`;
  return new QueryError(GrpcCode.resourceExhausted, text, {
    headers: { 'Retry-After': RETRY_SECONDS },
  });
}

function allHoldTooMuch(): QueryError {
  const text = `requests in progress hold too much memory; try again in ${RETRY_SECONDS} seconds`;
  return new QueryError(GrpcCode.unavailable, text, { headers: { 'Retry-After': RETRY_SECONDS } });
}
