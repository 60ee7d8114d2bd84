import { createParamDecorator, type ExecutionContext } from '@nestjs/common';

/** Who is calling, proven before the handler runs. */
export interface Caller {
  readonly did: string;
}

/** Hands a handler the caller the guard has proven. */
export const CurrentCaller = createParamDecorator(
  (_: unknown, context: ExecutionContext): Caller => {
    const { caller } = context.switchToHttp().getRequest<{ caller?: Caller }>();
    if (!caller) throw new Error('A public route asked for its caller');
    return caller;
  },
);
