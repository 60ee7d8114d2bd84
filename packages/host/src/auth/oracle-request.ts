import type { Request } from 'express';
import type { Caller } from './caller.js';

/** A request on its way through the host. */
export interface OracleRequest extends Request {
  requestId: string;
  /** Set once the caller is proven; absent on public routes. */
  caller?: Caller;
  /** Whether the limit of those without a proven caller has been applied, or need not be. */
  isCounted?: boolean;
}

/** A request the guard has let in on a protected route. */
export type ProvenRequest = OracleRequest & { readonly caller: Caller };
