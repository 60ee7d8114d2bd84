import { RequestMethod, type Type } from '@nestjs/common';
import { METHOD_METADATA, PATH_METADATA } from '@nestjs/common/constants.js';
import { ModulesContainer } from '@nestjs/core';
import type { NestExpressApplication } from '@nestjs/platform-express';
import { ROUTE_DESCRIPTION, type RouteDescription } from '../routes/describe.js';
import { PublicRoutes } from '../rules/public-routes.js';
import type { LoadedPlugin } from '../rules/set-up-plugin.js';

/** A route of a plugin. */
export interface TestRoute {
  readonly method: string;
  /** As the router matches it, such as `/notes/:id`. */
  readonly path: string;
  /** Whether callers without a UCAN may use it. */
  readonly isOpen: boolean;
  readonly description?: RouteDescription;
}

/** Every route the plugins bring, in the order they are registered. */
export function routesOf(
  app: NestExpressApplication,
  plugins: readonly LoadedPlugin[],
): TestRoute[] {
  const open = new PublicRoutes(plugins.flatMap(({ openRoutes }) => [...openRoutes]));
  return [...app.get(ModulesContainer).values()]
    .flatMap(({ controllers }) => [...controllers.values()])
    .flatMap(({ metatype }) => handlersOf(metatype as Type))
    .map((route) => ({ ...route, isOpen: open.includes(route.method, route.path) }));
}

function handlersOf(controller: Type): Omit<TestRoute, 'isOpen'>[] {
  const base = Reflect.getMetadata(PATH_METADATA, controller);
  return Object.getOwnPropertyNames(controller.prototype).flatMap((name) => {
    const handler = controller.prototype[name];
    const method: RequestMethod | undefined = Reflect.getMetadata(METHOD_METADATA, handler);
    if (method === undefined) return [];
    const path = joined(base, Reflect.getMetadata(PATH_METADATA, handler));
    const description = Reflect.getMetadata(ROUTE_DESCRIPTION, handler);
    return [{ method: RequestMethod[method], path, ...(description && { description }) }];
  });
}

const joined = (...parts: readonly string[]) =>
  `/${parts
    .flatMap((part) => part.split('/'))
    .filter(Boolean)
    .join('/')}`;
