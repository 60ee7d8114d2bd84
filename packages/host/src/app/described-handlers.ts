import { RequestMethod, type Type } from '@nestjs/common';
import { METHOD_METADATA, PATH_METADATA, ROUTE_ARGS_METADATA } from '@nestjs/common/constants.js';
import { RouteParamtypes } from '@nestjs/common/enums/route-paramtypes.enum.js';
import { MetadataScanner, ModulesContainer } from '@nestjs/core';
import type { NestExpressApplication } from '@nestjs/platform-express';
import type { Route } from '@sibyl/plugin-kit';
import {
  ACCESS_KEY_ROUTE,
  OWN_KEY_ROUTE,
  ROUTE_DESCRIPTION,
  ROUTE_ERROR_FORMAT,
  type RouteDescription,
  WORK_ROUTE,
} from '@sibyl/plugin-kit/host';
import { z } from 'zod';
import { PUBLIC_ROUTE } from '../http/ucan-guard.js';

/** A handler of a controller, as its decorators describe it. */
export interface DescribedHandler {
  readonly operationId: string;
  readonly method: string;
  /** As the router writes it. */
  readonly pattern: string;
  readonly body: z.ZodType | undefined;
  readonly query: z.ZodType | undefined;
  readonly params: z.ZodType | undefined;
  /** Whether it reads its body, query or the parameters of its path through decorators, which check them. */
  readonly checksInput: boolean;
  readonly isPublic: boolean;
  readonly acceptsKeys: boolean;
  /** Whether a delegation is not enough; a function decides by the body. */
  readonly needsOwnKey: Route['needsOwnKey'];
  /** Whether it is refused while the host has no time for it. */
  readonly startsWork: boolean;
  /** Whether its errors have the form of another protocol. */
  readonly hasOwnErrors: boolean;
  readonly description: RouteDescription | undefined;
}

/** The handlers of all controllers of the running host. */
export function listHandlers(nest: NestExpressApplication): DescribedHandler[] {
  const controllers = [...nest.get(ModulesContainer).values()].flatMap((module) =>
    [...module.controllers.values()].flatMap(({ metatype }) =>
      typeof metatype === 'function' ? [metatype as Type] : [],
    ),
  );
  const scanner = new MetadataScanner();
  return controllers.flatMap((controller) =>
    scanner
      .getAllMethodNames(controller.prototype)
      .flatMap((name) => describeHandler(controller, name)),
  );
}

/** One for each of its paths; empty for any other method. */
function describeHandler(controller: Type, name: string): DescribedHandler[] {
  const handler = controller.prototype[name];
  const read = (key: string | symbol, on: object = handler) => Reflect.getMetadata(key, on);
  const method: RequestMethod | undefined = read(METHOD_METADATA);
  if (method === undefined) return [];
  const described = {
    operationId: `${controller.name.replace('Controller', '')}.${name}`,
    method: RequestMethod[method].toLowerCase(),
    ...describeInput(Reflect.getMetadata(ROUTE_ARGS_METADATA, controller, name) ?? {}),
    isPublic: [handler, controller].some((on) => read(PUBLIC_ROUTE, on)),
    acceptsKeys: read(ACCESS_KEY_ROUTE) === true,
    needsOwnKey: read(OWN_KEY_ROUTE),
    startsWork: read(WORK_ROUTE) !== undefined,
    hasOwnErrors: read(ROUTE_ERROR_FORMAT) !== undefined,
    description: read(ROUTE_DESCRIPTION),
  };
  const prefixes = listPaths(read(PATH_METADATA, controller));
  const paths = listPaths(read(PATH_METADATA));
  return prefixes.flatMap((prefix) =>
    paths.map((path) => ({ ...described, pattern: joinPaths(prefix, path) })),
  );
}

const listPaths = (paths: string | readonly string[] = '') => [paths].flat();

/** With one slash before each part. */
const joinPaths = (...paths: readonly string[]) =>
  `/${paths.flatMap((path) => path.split('/').filter(Boolean)).join('/')}`;

/** What decorators give to the parameters of a handler, by `type:index`. */
type Arguments = Readonly<Record<string, { readonly schema?: unknown }>>;

function describeInput(given: Arguments) {
  const find = (type: RouteParamtypes) =>
    Object.entries(given).find(([key]) => key.startsWith(`${type}:`))?.[1];
  const { BODY, QUERY, PARAM } = RouteParamtypes;
  const [body, query, params] = [BODY, QUERY, PARAM].map((type) => {
    const schema = find(type)?.schema;
    return schema instanceof z.ZodType ? schema : undefined;
  });
  return { body, query, params, checksInput: [BODY, QUERY, PARAM].some(find) };
}
