import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import type { OracleRequest } from './oracle-request.js';

/** Who is calling: the DID proven by the UCAN, never one a header claims. */
export interface Caller {
  readonly did: string;
  /** Unix seconds; the proof does not count after it. */
  readonly expiration: number;
  /** The delegation that came along, as sent: not verified yet. */
  readonly presentedDelegation: string | undefined;
}

/** Hands a handler the caller the guard has proven. */
export const CurrentCaller = createParamDecorator(
  (_: unknown, context: ExecutionContext): Caller => {
    const { caller } = context.switchToHttp().getRequest<OracleRequest>();
    if (!caller) throw new Error('A public route asked for its caller');
    return caller;
  },
);
