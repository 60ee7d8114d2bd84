import {
  type ArgumentMetadata,
  Body,
  Controller,
  type DynamicModule,
  HttpCode,
  Injectable,
  Param,
  type PipeTransform,
  Query,
  Req,
  RequestMapping,
  RequestMethod,
  SetMetadata,
} from '@nestjs/common';
import { describeIssues, OracleError } from '@sibyl/protocol';
import type { AuthExcludedRoute } from '../plugin.js';
import {
  ACCESS_KEY_ROUTE,
  type Caller,
  Describe,
  ORIGIN_CHECKED_ROUTE,
  OWN_KEY_ROUTE,
  ROUTE_ERROR_FORMAT,
  type Route,
  WORK_ROUTE,
} from '../routes.js';

interface HttpRequest {
  /** `login` is the delegation with which the caller logged in. */
  readonly caller?: Caller & { readonly login?: unknown };
  readonly params: Readonly<Record<string, string>>;
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly rawBody?: Buffer;
  /** Refuses so many pieces of work, or counts them. */
  readonly startWork?: (count: number) => void;
  readonly res: { once(event: 'close', listener: () => void): unknown };
}

/** Builds the Nest module for the routes of a plugin, so that guards, pipes and filters apply to them. */
export function buildRouteModule(plugin: string, routes: readonly Route[]): DynamicModule {
  class RoutesModule {}
  class RoutesController {}
  Object.defineProperty(RoutesModule, 'name', { value: `${plugin}-routes` });
  Object.defineProperty(RoutesController, 'name', { value: plugin });
  for (const route of routes) addHandler(RoutesController.prototype, route);
  Controller()(RoutesController);
  return { module: RoutesModule, controllers: [RoutesController] };
}

function addHandler(prototype: object, route: Route): void {
  const { method, path, params, query, body, status = 200, needsOwnKey, startsWork } = route;
  // The API document and the body interceptor find a handler by this name.
  const name = findFreeName(prototype, `${method} ${path}`);
  const handle = (request: HttpRequest, ...[given, queried, sent]: readonly unknown[]) => {
    if (typeof needsOwnKey === 'function' && request.caller?.login && needsOwnKey(sent))
      throw new OracleError('own_key_required');
    if (typeof startsWork === 'function') request.startWork?.(startsWork(sent));
    return route.handler({
      caller: request.caller,
      params: params ? given : { ...request.params },
      query: queried,
      body: sent,
      headers: request.headers,
      rawBody: request.rawBody ?? Buffer.alloc(0),
      get signal() {
        const gone = new AbortController();
        request.res.once('close', () => gone.abort());
        return gone.signal;
      },
    });
  };
  const value = Object.defineProperty(handle, 'name', { value: name });
  const descriptor = { value, writable: true, configurable: true, enumerable: false };
  Object.defineProperty(prototype, name, descriptor);
  // The compiler writes this for classes; the API document shows no parameters without it.
  Reflect.defineMetadata('design:paramtypes', [Object, Object, Object, Object], prototype, name);
  Req()(prototype, name, 0);
  if (params) Param({ schema: params })(prototype, name, 1);
  if (query) Query({ schema: query })(prototype, name, 2);
  if (body) Body({ schema: body })(prototype, name, 3);
  RequestMapping({ method: RequestMethod[method], path })(prototype, name, descriptor);
  HttpCode(status)(prototype, name, descriptor);
  Describe(route)(prototype, name, descriptor);
  SetMetadata(ROUTE_ERROR_FORMAT, route.formatError)(prototype, name, descriptor);
  if (route.checksOrigin) SetMetadata(ORIGIN_CHECKED_ROUTE, true)(prototype, name, descriptor);
  if (needsOwnKey) SetMetadata(OWN_KEY_ROUTE, needsOwnKey)(prototype, name, descriptor);
  if (startsWork) SetMetadata(WORK_ROUTE, startsWork)(prototype, name, descriptor);
  if (route.auth === 'access-key') SetMetadata(ACCESS_KEY_ROUTE, true)(prototype, name, descriptor);
}

/** Paths such as `/a/b` and `/a-b` have the same words, so the second one gets a number. */
function findFreeName(prototype: object, route: string): string {
  const words = route.toLowerCase().replaceAll(/\W+/g, '_').replace(/_$/, '');
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? words : `${words}_${number}`;
    if (!Object.hasOwn(prototype, name)) return name;
  }
}

/** Routes that need no UCAN. */
export class PublicRoutes {
  private readonly routes: readonly PublicRoute[];

  constructor(routes: readonly AuthExcludedRoute[]) {
    this.routes = routes.map(readPublicRoute);
  }

  /** Compares with the pattern that the router matched, never with the path as sent. */
  includes(method: string, pattern: string): boolean {
    for (const { path, prefix, methods } of this.routes) {
      const isMatch = prefix === undefined ? pattern === path : pattern.startsWith(prefix);
      if (isMatch && (!methods || methods.includes(method))) return true;
    }
    return false;
  }
}

interface PublicRoute {
  readonly path: string;
  /** Of all paths below, if it ends with a wildcard. */
  readonly prefix: string | undefined;
  /** Undefined for all. */
  readonly methods: readonly string[] | undefined;
}

function readPublicRoute(route: AuthExcludedRoute): PublicRoute {
  const { path: sent, method = RequestMethod.ALL } =
    typeof route === 'string' ? { path: route } : route;
  const path = `/${sent.replace(/^\/+|\/+$/g, '')}`;
  const prefix = WILDCARD.test(path) ? path.replace(WILDCARD, '/') : undefined;
  if (method === RequestMethod.ALL) return { path, prefix, methods: undefined };
  // Routes for GET answer HEAD too.
  const methods = method === RequestMethod.GET ? ['GET', 'HEAD'] : [RequestMethod[method]];
  return { path, prefix, methods };
}

const WILDCARD = /\/(\(\.\*\)|\*\w*)$/;

/** What the host has to know about a route of a plugin. */
export type PluginRoute = Pick<Route, 'method' | 'path' | 'auth' | 'formatError'>;

/** Routes for clients of other protocols, whose conventions apply on their paths. */
export class SurfaceRoutes {
  private readonly surfaces: readonly (PluginRoute & { readonly pattern: RegExp })[];

  constructor(routes: readonly PluginRoute[]) {
    this.surfaces = routes.filter(isSurfaceRoute).map((route) => {
      const pattern = new RegExp(`^${route.path.replaceAll(/:\w+/g, '[^/]+')}/?$`, 'i');
      return { ...route, pattern };
    });
  }

  /** A route of this path, with any method. */
  find(path: string): PluginRoute | undefined {
    return this.surfaces.find(({ pattern }) => pattern.test(path));
  }

  /** How errors on a path without a route are written: beside `/v1/models`, clients of that surface ask. */
  findErrorFormatBeside(path: string): PluginRoute['formatError'] {
    const folder = readFolder(path);
    if (folder === undefined) return undefined;
    return this.surfaces.find((route) => readFolder(route.path) === folder)?.formatError;
  }
}

/** The first part of a path with several. */
const readFolder = (path: string) => /^\/([^/]+)\/./.exec(path)?.[1]?.toLowerCase();

/** Access keys and foreign errors are for clients of other protocols. */
const isSurfaceRoute = ({ auth, formatError }: PluginRoute) =>
  auth === 'access-key' || formatError !== undefined;

/** Validates every argument of a handler that has a schema; each error names its field. */
@Injectable()
export class ValidationPipe implements PipeTransform {
  async transform(value: unknown, { schema, type, data }: ArgumentMetadata): Promise<unknown> {
    if (!schema || type === 'custom') return value;
    const result = await schema['~standard'].validate(value);
    if (!result.issues) return result.value;
    const message = describeIssues(result.issues, data ?? type);
    throw new OracleError('validation_failed', { message });
  }
}
