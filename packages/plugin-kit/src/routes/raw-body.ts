import { createParamDecorator, type ExecutionContext } from '@nestjs/common';

/** Hands a handler the bytes of a JSON body as they came, for signatures over them; empty without one. */
export const RawBody = createParamDecorator((_: unknown, context: ExecutionContext): Buffer => {
  const { rawBody } = context.switchToHttp().getRequest<{ rawBody?: Buffer }>();
  return rawBody ?? Buffer.alloc(0);
});
