import { GrpcCode } from '@sibyl/grpc-client';
import { QueryError } from './query-error.js';

/** Who makes a query. */
export interface QueryCaller {
  readonly name: string;
  /** An address that is limited as well, where names are free to create. */
  readonly address: string | undefined;
}

interface CallerSlotsOptions {
  readonly max: number;
  readonly maxPerCaller: number;
  /** The message for a caller that has taken all of its slots. */
  readonly callerMessage: string;
  /** The message if all slots are taken. */
  readonly totalMessage: string;
  readonly retrySeconds: number;
}

/** Limits what callers do at the same time: each caller, each address, and all of them together. */
export class CallerSlots {
  private readonly byCaller = new Map<string, number>();
  private taken = 0;

  constructor(private readonly options: CallerSlotsOptions) {}

  /** Takes a slot; returns the function that frees it, to be called once. Throws 429 or 503. */
  acquire({ name, address = name }: QueryCaller): () => void {
    const { max, maxPerCaller, callerMessage, totalMessage } = this.options;
    const keys = [name, `address ${address}`];
    if (keys.some((key) => this.count(key) >= maxPerCaller))
      throw this.createError(GrpcCode.resourceExhausted, callerMessage);
    if (this.taken >= max) throw this.createError(GrpcCode.unavailable, totalMessage);
    this.taken += 1;
    for (const key of keys) this.byCaller.set(key, this.count(key) + 1);
    return () => this.release(keys);
  }

  private release(keys: readonly string[]): void {
    this.taken -= 1;
    for (const key of keys) {
      if (this.count(key) > 1) this.byCaller.set(key, this.count(key) - 1);
      else this.byCaller.delete(key);
    }
  }

  private count(key: string): number {
    return this.byCaller.get(key) ?? 0;
  }

  private createError(code: GrpcCode, message: string): QueryError {
    const headers = { 'Retry-After': String(this.options.retrySeconds) };
    return new QueryError(code, message, { headers });
  }
}
