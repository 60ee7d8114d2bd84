import assert from 'node:assert/strict';
import { RequestMethod } from '@nestjs/common';
import { ModulesContainer } from '@nestjs/core';
import { ROUTE_DESCRIPTION } from '../../routes/describe.js';
import { PublicRoutes } from '../../rules/public-routes.js';
import { TEST_USER } from '../test-options.js';
import type { TestRuntime } from '../test-runtime.js';
import { oddBodies, oddSegments } from './hostile-input.js';
import type { ContractTest, Trial } from './trial.js';

/** What a plugin serves over HTTP. */
export const routeTests = ({ plugin, use }: Trial): ContractTest[] => [
  {
    name: 'opens only routes that it has',
    run: () =>
      use(async (runtime) => {
        const routes = await routesOf(runtime);
        for (const opened of plugin.getAuthExcludedRoutes?.() ?? []) {
          const one = new PublicRoutes([opened]);
          const isThere = routes.some(({ method, path }) => one.includes(method, path));
          assert.ok(isThere, `${JSON.stringify(opened)} is opened, but there is no such route`);
        }
      }),
  },
  {
    name: 'lets nobody without a name use a route that it has not opened',
    run: () =>
      use(async (runtime) => {
        const open = new PublicRoutes(plugin.getAuthExcludedRoutes?.() ?? []);
        for (const { method, path } of await routesOf(runtime)) {
          if (open.includes(method, path)) continue;
          const { status } = await runtime.request(method, filled(path, 'x'));
          assert.equal(status, 401, `${method} ${path}`);
        }
      }),
  },
  {
    name: 'describes its routes',
    run: () =>
      use(async (runtime) => {
        for (const { name, handler } of await handlersOf(runtime))
          assert.ok(Reflect.getMetadata(ROUTE_DESCRIPTION, handler), `${name} is not described`);
      }),
  },
  {
    name: 'answers its routes whatever is sent, errors as JSON',
    run: () =>
      use(async (runtime) => {
        for (const route of await routesOf(runtime)) await assertStands(runtime, route);
      }),
  },
];

interface Route {
  readonly method: string;
  readonly path: string;
}

interface Layer {
  readonly route?: { readonly path: string; readonly methods: Readonly<Record<string, boolean>> };
}

const METHODS = new Set(Object.keys(RequestMethod));

/** Every route the running router knows. */
async function routesOf(runtime: TestRuntime): Promise<Route[]> {
  const { router } = (await runtime.app()).getHttpAdapter().getInstance();
  return (router.stack as unknown as Layer[]).flatMap(({ route }) =>
    Object.keys(route?.methods ?? {})
      .map((method) => ({ method: method.toUpperCase(), path: String(route?.path) }))
      .filter(({ method }) => METHODS.has(method)),
  );
}

async function handlersOf(runtime: TestRuntime) {
  const modules = [...(await runtime.app()).get(ModulesContainer).values()];
  return modules
    .flatMap(({ controllers }) => [...controllers.values()])
    .flatMap(({ metatype }) => {
      const { prototype = {}, name } = metatype as { prototype?: object; name: string };
      return Object.getOwnPropertyNames(prototype)
        .map((key) => ({ name: `${name}.${key}`, handler: Reflect.get(prototype, key) }))
        .filter(({ handler }) => typeof handler === 'function' && isRoute(handler));
    });
}

const isRoute = (handler: object) => Reflect.getMetadata('method', handler) !== undefined;

const filled = (path: string, segment: string) =>
  path.replaceAll(/:\w+/g, segment).replaceAll(/[{/]?\*\w+\}?/g, `/${segment}`);

async function assertStands(runtime: TestRuntime, { method, path }: Route): Promise<void> {
  const bodies = ['GET', 'HEAD', 'DELETE'].includes(method) ? [undefined] : oddBodies;
  for (const segment of path.includes(':') ? oddSegments : ['x'])
    for (const body of bodies) {
      const parts = { caller: TEST_USER, ...(body !== undefined && { body }) };
      const {
        status,
        headers,
        body: answer,
      } = await runtime.request(method, filled(path, segment), parts);
      const where = `${method} ${filled(path, segment)} with ${body}`;
      assert.ok(status < 500, `${where} answered ${status}: ${JSON.stringify(answer)}`);
      const isJson = headers.get('content-type')?.includes('json');
      if (status >= 400) assert.ok(isJson, `${where} answered ${status} without JSON`);
    }
}
