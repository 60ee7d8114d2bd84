import assert from 'node:assert/strict';
import { PublicRoutes } from '../../rules/public-routes.js';
import { TEST_USER } from '../test-options.js';
import type { TestRoute } from '../test-routes.js';
import type { TestRuntime } from '../test-runtime.js';
import { oddBodies, oddSegments } from './hostile-input.js';
import type { ContractTest, Trial } from './trial.js';

/** What a plugin serves over HTTP. */
export const routeTests = ({ plugin, use }: Trial): ContractTest[] => [
  {
    name: 'opens only routes that it has',
    run: () =>
      use(async (runtime) => {
        const routes = await runtime.routes();
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
        for (const { method, path, isOpen } of await runtime.routes()) {
          if (isOpen) continue;
          const { status } = await runtime.request(method, filled(path, 'x'));
          assert.equal(status, 401, `${method} ${path}`);
        }
      }),
  },
  {
    name: 'describes its routes',
    run: () =>
      use(async (runtime) => {
        for (const { method, path, description } of await runtime.routes())
          assert.ok(description?.summary, `${method} ${path} is not described`);
      }),
  },
  {
    name: 'answers its routes whatever is sent, errors as JSON',
    run: () =>
      use(async (runtime) => {
        for (const route of await runtime.routes()) await assertStands(runtime, route);
      }),
  },
];

const filled = (path: string, segment: string) =>
  path.replaceAll(/:\w+/g, segment).replaceAll(/[{/]?\*\w+\}?/g, `/${segment}`);

async function assertStands(runtime: TestRuntime, { method, path }: TestRoute): Promise<void> {
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
