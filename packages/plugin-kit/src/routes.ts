import { createParamDecorator, type ExecutionContext, SetMetadata } from '@nestjs/common';
import type { ErrorCode } from '@sibyl/protocol';
import type { z } from 'zod';

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

/** Hands a handler the bytes of a JSON body as they came, for signatures over them; empty without one. */
export const RawBody = createParamDecorator((_: unknown, context: ExecutionContext): Buffer => {
  const { rawBody } = context.switchToHttp().getRequest<{ rawBody?: Buffer }>();
  return rawBody ?? Buffer.alloc(0);
});

/** What the API document says of a route, beside what its schemas say. */
export interface RouteDescription {
  readonly summary: string;
  /** What it answers with on success; absent for a route that only streams. */
  readonly reply?: z.ZodType;
  /** 200 unless told. */
  readonly status?: number;
  /** Whether it answers with server-sent events, always or when asked. */
  readonly streams?: boolean;
  /** Failures beside those every route of its kind has. */
  readonly errors?: readonly ErrorCode[];
  /** Request headers beside those every route of its kind reads: name → meaning, with a schema where not any text will do. */
  readonly headers?: Readonly<Record<string, string | HeaderDescription>>;
  /** Media types of a success that is not JSON. */
  readonly mediaTypes?: readonly string[];
  /** Statuses beside the success and the errors: when each is sent, and its JSON. */
  readonly otherReplies?: Readonly<Record<number, OtherReply>>;
}

export interface HeaderDescription {
  readonly meaning: string;
  readonly schema: z.ZodType;
}

export interface OtherReply {
  readonly when: string;
  readonly reply?: z.ZodType;
}

// The same in every copy of this package.
export const ROUTE_DESCRIPTION = Symbol.for('sibyl route description');

/** Describes a handler. Plain metadata, so that a host whose document nobody reads need not load Swagger. */
export const Describe = (description: RouteDescription) =>
  SetMetadata(ROUTE_DESCRIPTION, description);
