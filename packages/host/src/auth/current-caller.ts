import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import type { Caller } from './caller.js';
import type { OracleRequest } from './oracle-request.js';

/** Hands a handler the caller the guard has proven. */
export const CurrentCaller = createParamDecorator(
  (_: unknown, context: ExecutionContext): Caller => {
    const { caller } = context.switchToHttp().getRequest<OracleRequest>();
    if (!caller) throw new Error('A public route asked for its caller');
    return caller;
  },
);
