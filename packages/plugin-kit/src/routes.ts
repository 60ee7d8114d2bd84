import { createParamDecorator, type ExecutionContext, SetMetadata } from '@nestjs/common';
import type { ErrorCode } from '@sibyl/protocol';
import type { z } from 'zod';

/** The proven caller of a route. */
export interface Caller {
  readonly did: string;
}

/** What the handler of a route receives; every part is validated before it runs. */
export interface RouteRequest<Auth, Params, Query, Body> {
  /** Undefined on a public route. */
  readonly caller: Auth extends 'public' ? undefined : Caller;
  readonly params: Params;
  readonly query: Query;
  readonly body: Body;
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** The bytes of a JSON body, or of a form if the route accepts them, as sent; empty without a body. */
  readonly rawBody: Buffer;
  /** Aborts when the client disconnects. */
  readonly signal: AbortSignal;
}

/** Who may call a route. */
type RouteAuth = 'user' | 'access-key' | 'public';

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

type Output<Schema, Otherwise> = Schema extends z.ZodType ? z.output<Schema> : Otherwise;

/** The parameters in a path: `/todos/:id` has `id`. */
export type PathParams<Path extends string> = Path extends `${infer Head}/${infer Tail}`
  ? PathParams<Head> & PathParams<Tail>
  : Path extends `:${infer Name}`
    ? { readonly [Key in Name]: string }
    : unknown;

interface RouteDefinition<Path extends string, Auth, Params, Query, Body, Reply, Plugin = unknown>
  extends Pick<
      RouteDescription,
      | 'summary'
      | 'status'
      | 'errors'
      | 'headers'
      | 'acceptsForms'
      | 'acceptsFiles'
      | 'acceptsManyValues'
      | 'otherReplies'
      | 'mediaTypes'
    >,
    Pick<Route, 'checksOrigin'> {
  readonly method: Method;
  /** Such as `/todos/:id`. */
  readonly path: Path;
  /**
   * `user` (the default) needs a caller with a UCAN; `access-key` also accepts an access key, which permits no more than
   * chatting; a `public` route is open to everyone.
   */
  readonly auth?: Auth;
  /**
   * Whether a caller who logged in with a delegation is refused: for what outlives a login, or shows everything. A function
   * decides by the body.
   */
  readonly needsOwnKey?: boolean | ((body: Output<Body, undefined>) => boolean);
  /**
   * Whether it starts a turn, or other work that takes far longer than a request: the host refuses it while it has no time, and
   * limits how much of it new users start. A function says how much by the body, where one route serves many methods.
   */
  readonly startsWork?: boolean | ((body: Output<Body, undefined>) => number);
  readonly params?: Params;
  readonly query?: Query;
  /** Without it a body is ignored. */
  readonly body?: Body;
  /** The JSON of a success, for the API document and the type of the handler. */
  readonly reply?: z.ZodType<Reply>;
  /** Throws an OracleError to refuse. */
  readonly handler: (
    request: RouteRequest<
      Auth,
      Output<Params, PathParams<Path>>,
      Output<Query, undefined>,
      Output<Body, undefined>
    > &
      Plugin,
  ) => NoInfer<Reply> | RouteReply | Promise<NoInfer<Reply> | RouteReply>;
  /** The JSON or plain text of an error, for clients of another protocol; by default the JSON of the host. */
  readonly formatError?: (error: RouteError) => unknown;
}

/** An HTTP route of a plugin. */
export interface Route extends Omit<RouteDescription, 'bodyTypes' | 'streams'> {
  readonly method: Method;
  readonly path: string;
  readonly auth: RouteAuth;
  // biome-ignore lint/suspicious/noExplicitAny: defineRoute checks it against the schema.
  readonly needsOwnKey?: boolean | ((body: any) => boolean);
  // biome-ignore lint/suspicious/noExplicitAny: defineRoute checks it against the schema.
  readonly startsWork?: boolean | ((body: any) => number);
  /** Whether pages of origins that CORS_ORIGIN does not allow are refused; the same page under a foreign name too. */
  readonly checksOrigin?: boolean;
  readonly params?: z.ZodType | undefined;
  readonly query?: z.ZodType | undefined;
  readonly body?: z.ZodType | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: defineRoute checks it against the schemas.
  readonly handler: (request: any) => unknown;
  readonly formatError?: ((error: RouteError) => unknown) | undefined;
}

/** Types a route by its schemas. */
export const defineRoute = <
  const Path extends string,
  Auth extends RouteAuth = 'user',
  Params extends z.ZodType | undefined = undefined,
  Query extends z.ZodType | undefined = undefined,
  Body extends z.ZodType | undefined = undefined,
  Reply = unknown,
>({
  auth,
  ...route
}: RouteDefinition<Path, Auth, Params, Query, Body, Reply>): Route => ({
  ...route,
  auth: auth ?? 'user',
});

/** As `defineRoute`; the handler also receives what it needs of its plugin. */
export type PluginRoute<Plugin> = <
  const Path extends string,
  Auth extends RouteAuth = 'user',
  Params extends z.ZodType | undefined = undefined,
  Query extends z.ZodType | undefined = undefined,
  Body extends z.ZodType | undefined = undefined,
  Reply = unknown,
>(
  route: RouteDefinition<Path, Auth, Params, Query, Body, Reply, Plugin>,
) => Route;

export const createRouteFactory =
  <Plugin extends object>(plugin: Plugin): PluginRoute<Plugin> =>
  ({ handler, ...route }) =>
    defineRoute({
      ...route,
      // Not a copy, which would read `signal`.
      handler: (request) => handler(Object.assign(request, plugin)),
    });

/** Injects the proven caller into a handler of a Nest controller. */
export const CurrentCaller = createParamDecorator(
  (_: unknown, context: ExecutionContext): Caller => {
    const { caller } = context.switchToHttp().getRequest<{ caller?: Caller }>();
    if (!caller) throw new Error('A public route has no caller');
    return caller;
  },
);

/** Injects the bytes of a JSON body as sent, for signatures; empty without a body. */
export const RawBody = createParamDecorator((_: unknown, context: ExecutionContext): Buffer => {
  const { rawBody } = context.switchToHttp().getRequest<{ rawBody?: Buffer }>();
  return rawBody ?? Buffer.alloc(0);
});

/** What the API document states about a route, in addition to its schemas. */
export interface RouteDescription {
  readonly summary: string;
  /** The JSON of a success; absent for a route that only streams. */
  readonly reply?: z.ZodType | undefined;
  /** 200 by default. */
  readonly status?: number;
  /** Whether it can reply with server-sent events. */
  readonly streams?: boolean;
  /** Errors in addition to those of every route of its kind. */
  readonly errors?: readonly ErrorCode[];
  /** Request headers in addition to those of every route: name → meaning, with a schema if not every text is valid. */
  readonly headers?: Readonly<Record<string, string | HeaderDescription>>;
  /** Whether the body may be a form (`application/x-www-form-urlencoded`); its bytes are in `rawBody`. */
  readonly acceptsForms?: boolean;
  /** Whether a JSON body may contain files, and be as large as `FILES_BODY_LIMIT`. */
  readonly acceptsFiles?: boolean;
  /**
   * Whether the body may have history, tools or metadata: 100,000 JSON values and 20,000 members of objects, instead of
   * 20,000 and 5,000.
   */
  readonly acceptsManyValues?: boolean;
  /** Media types of a body that is not JSON. */
  readonly bodyTypes?: readonly string[];
  /** Media types of a success that is not JSON. */
  readonly mediaTypes?: readonly string[];
  /** Other statuses that are not errors: when each is sent, and its JSON. */
  readonly otherReplies?: Readonly<Record<number, OtherReply>>;
}

export interface HeaderDescription {
  readonly meaning: string;
  readonly schema: z.ZodType;
  /** False by default. */
  readonly isRequired?: boolean;
}

export interface OtherReply {
  readonly when: string;
  readonly reply?: z.ZodType;
}

/** An error in the terms of the host. */
export interface RouteError {
  readonly status: number;
  readonly code: string;
  readonly message: string;
}

interface RouteReplyOptions {
  /** 200 by default. */
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent in chunks, at the pace of the client. Without it, there is no body. */
  readonly stream?: AsyncIterable<string>;
}

/** What a handler returns instead of JSON: a stream, or a status without a body. */
export class RouteReply {
  constructor(readonly options: RouteReplyOptions) {}

  /** Server-sent events, in chunks of text that proxies pass on at once. */
  static events(
    stream: AsyncIterable<string>,
    headers: Readonly<Record<string, string>> = {},
  ): RouteReply {
    return new RouteReply({ headers: { ...EVENT_HEADERS, ...headers }, stream });
  }
}

const EVENT_HEADERS = {
  'Content-Type': 'text/event-stream',
  'Cache-Control': 'no-cache, no-transform',
  'X-Accel-Buffering': 'no',
};

/** The `formatError` of a handler. */
export const ROUTE_ERROR_FORMAT = Symbol.for('sibyl route error format');

/** Marks handlers that refuse pages of origins that are not allowed. */
export const ORIGIN_CHECKED_ROUTE = Symbol.for('sibyl origin-checked route');

/** Marks handlers that need a login with the caller's own key. */
export const OWN_KEY_ROUTE = Symbol.for('sibyl own-key route');

/**
 * Refuses callers who logged in with a delegation, which other services may also know: for what outlives a login, or shows
 * everything.
 */
export const NeedsOwnKey = () => SetMetadata(OWN_KEY_ROUTE, true);

/** Marks handlers that start work that takes far longer than a request. */
export const WORK_ROUTE = Symbol.for('sibyl work route');

/** Refuses requests while the host has no time for what they start, such as turns, and limits how many new users send. */
export const StartsWork = () => SetMetadata(WORK_ROUTE, true);

/** Marks handlers that accept access keys. */
export const ACCESS_KEY_ROUTE = Symbol.for('sibyl access-key route');

// The same in every copy of this package.
export const ROUTE_DESCRIPTION = Symbol.for('sibyl route description');

/** Describes a handler of a Nest controller. Plain metadata: Swagger loads only when the API document is read. */
export const Describe = (description: RouteDescription) =>
  SetMetadata(ROUTE_DESCRIPTION, description);
