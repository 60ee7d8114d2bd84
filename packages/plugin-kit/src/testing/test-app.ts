import { STATUS_CODES } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  type ArgumentsHost,
  type ExecutionContext,
  RequestMethod,
  type Type,
} from '@nestjs/common';
import { METHOD_METADATA, PATH_METADATA } from '@nestjs/common/constants.js';
import { ModulesContainer, NestFactory } from '@nestjs/core';
import type { NestExpressApplication } from '@nestjs/platform-express';
import { OracleError } from '@sibyl/protocol';
import type { LoadedPlugin } from '../host/plugin-setup.js';
import { PublicRoutes, ValidationPipe } from '../host/route-module.js';
import { ROUTE_DESCRIPTION, type RouteDescription } from '../routes.js';

/** Names the caller in tests; the host requires a proof. */
export const CALLER_HEADER = 'x-test-caller';

class TestModule {}

/** Serves the routes of plugins as the host does: with guard, validation and JSON errors. */
export async function openTestApp(
  plugins: readonly LoadedPlugin[],
): Promise<{ readonly app: NestExpressApplication; readonly url: string }> {
  const imports = plugins.flatMap(({ nestModules }) => [...nestModules]);
  const app = await NestFactory.create<NestExpressApplication>(
    { module: TestModule, imports },
    { logger: false, rawBody: true, abortOnError: false },
  );
  const open = new PublicRoutes(plugins.flatMap(({ openRoutes }) => [...openRoutes]));
  app.useGlobalGuards({ canActivate: (context) => authenticate(context, open) });
  app.useGlobalPipes(new ValidationPipe());
  app.useGlobalFilters({ catch: sendError });
  await app.listen(0, '127.0.0.1');
  const { port } = app.getHttpServer().address() as AddressInfo;
  return { app, url: `http://127.0.0.1:${port}` };
}

interface TestRequest {
  readonly method: string;
  readonly route?: { readonly path: string };
  readonly headers: Readonly<Record<string, string | undefined>>;
  caller?: { readonly did: string };
}

function authenticate(context: ExecutionContext, open: PublicRoutes): boolean {
  const request = context.switchToHttp().getRequest<TestRequest>();
  if (open.includes(request.method, String(request.route?.path))) return true;
  const did = request.headers[CALLER_HEADER];
  if (!did) throw new OracleError('missing_authentication');
  request.caller = { did };
  return true;
}

interface TestResponse {
  readonly headersSent: boolean;
  status(code: number): { json(body: object): void };
}

function sendError(error: unknown, host: ArgumentsHost): void {
  const response = host.switchToHttp().getResponse<TestResponse>();
  if (response.headersSent) return;
  const { status, ...body } = describeError(error);
  const phrase = STATUS_CODES[status] ?? 'Error';
  response.status(status).json({ statusCode: status, error: phrase, ...body });
}

function describeError(error: unknown) {
  if (error instanceof OracleError) {
    const { status, code, lines, fields } = error;
    return { status, code, message: lines ?? error.message, ...fields };
  }
  const { getStatus, message } = error as { getStatus?: () => number; message?: string };
  // The error itself is shown, for the author of the test.
  const status = typeof getStatus === 'function' ? getStatus.call(error) : 500;
  return { status, code: status === 500 ? 'internal_error' : 'refused', message };
}

/** A route of a plugin. */
export interface TestRoute {
  readonly method: string;
  /** The router's pattern, such as `/notes/:id`. */
  readonly path: string;
  /** Whether it needs no UCAN. */
  readonly isPublic: boolean;
  readonly description?: RouteDescription;
}

/** Every route of the plugins, in the order of registration. */
export function listRoutes(
  app: NestExpressApplication,
  plugins: readonly LoadedPlugin[],
): TestRoute[] {
  const open = new PublicRoutes(plugins.flatMap(({ openRoutes }) => [...openRoutes]));
  return [...app.get(ModulesContainer).values()]
    .flatMap(({ controllers }) => [...controllers.values()])
    .flatMap(({ metatype }) => listHandlers(metatype as Type))
    .map((route) => ({ ...route, isPublic: open.includes(route.method, route.path) }));
}

function listHandlers(controller: Type): Omit<TestRoute, 'isPublic'>[] {
  const base = Reflect.getMetadata(PATH_METADATA, controller);
  return Object.getOwnPropertyNames(controller.prototype).flatMap((name) => {
    const handler = controller.prototype[name];
    const method: RequestMethod | undefined = Reflect.getMetadata(METHOD_METADATA, handler);
    if (method === undefined) return [];
    const path = joinPath(base, Reflect.getMetadata(PATH_METADATA, handler));
    const description = Reflect.getMetadata(ROUTE_DESCRIPTION, handler);
    return [{ method: RequestMethod[method], path, ...(description && { description }) }];
  });
}

const joinPath = (...parts: readonly string[]) =>
  `/${parts
    .flatMap((part) => part.split('/'))
    .filter(Boolean)
    .join('/')}`;
