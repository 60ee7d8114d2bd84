import { defineRoute } from '@sibyl/plugin-kit';
import { afterEach, expect, it } from 'vitest';
import { z } from 'zod';
import { startHost, type TestHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';
import { TestUser } from './support/user.js';

const Reply = z.object({ path: z.string() }).meta({ id: 'PathReply' });

const route = (path: string, auth: 'user' | 'public') =>
  defineRoute({
    method: 'GET',
    path,
    auth,
    summary: `Returns ${path}`,
    reply: Reply,
    handler: async () => ({ path }),
  });

let host: TestHost | undefined;
afterEach(() => host?.close());

it('defineRoute: paths with the same words are separate routes, each with its own auth', async () => {
  const routes = [route('/parts/list', 'public'), route('/parts-list', 'user')];
  host = await startHost({ bundled: [], plugins: [testPlugin('parts', { routes })] });
  const open = await fetch(`${host.url}/parts/list`);
  expect([open.status, await open.json()]).toEqual([200, { path: '/parts/list' }]);
  expect((await fetch(`${host.url}/parts-list`)).status).toBe(401);
  const guarded = await new TestUser(host).request('GET', '/parts-list');
  expect(guarded.status).toBe(200);
});

it('defineRoute: a public route with a wildcard is a startup error', async () => {
  const plugin = testPlugin('parts', { routes: [route('/parts/*rest', 'public')] });
  await expect(startHost({ bundled: [], plugins: [plugin] })).rejects.toThrow(
    'a public route cannot have a wildcard',
  );
});
