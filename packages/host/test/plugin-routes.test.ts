import { Agent, type IncomingMessage, request } from 'node:http';
import { Controller, Get } from '@nestjs/common';
import { defineRoute } from '@sibyl/plugin-kit';
import { RouteReply } from '@sibyl/plugin-kit/surface';
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

/** A plugin whose Nest module has the route `/parts/:name`. */
function module(name: string) {
  class PartsController {
    find() {}
  }
  class PartsModule {}
  const { prototype } = PartsController;
  const find = Object.getOwnPropertyDescriptor(prototype, 'find') as PropertyDescriptor;
  Get('/parts/:name')(prototype, 'find', find);
  Controller()(PartsController);
  return testPlugin(name, {
    getNestModules: () => [{ module: PartsModule, controllers: [PartsController] }],
  });
}

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

it.each([
  ['of the host', [testPlugin('parts', { routes: [route('/Sessions/', 'public')] })]],
  [
    'of another plugin, with another parameter',
    [
      testPlugin('first', { routes: [route('/parts/:name', 'user')] }),
      testPlugin('parts', { routes: [route('/parts/:id', 'public')] }),
    ],
  ],
  [
    'of a Nest module',
    [module('first'), testPlugin('parts', { routes: [route('/parts/:id', 'user')] })],
  ],
])('defineRoute: a route %s that exists already is a startup error', async (_, plugins) => {
  const start = startHost({ bundled: [], plugins });
  await expect(start).rejects.toThrow(
    /parts: its route GET \/(Sessions\/|parts\/:id) exists already\n.*Change its path/,
  );
});

it('defineRoute: HEAD of a stream ends at once, and so does its source', async () => {
  let isOpen = false;
  const ended = Promise.withResolvers<void>();
  const endless = async function* () {
    isOpen = true;
    try {
      yield 'data: first\n\n';
      await ended.promise;
    } finally {
      isOpen = false;
    }
  };
  const stream = defineRoute({
    method: 'GET',
    path: '/parts',
    auth: 'public',
    summary: 'Never ends',
    reply: Reply,
    handler: () =>
      new RouteReply({ headers: { 'Content-Type': 'text/event-stream' }, stream: endless() }),
  });
  host = await startHost({ bundled: [], plugins: [testPlugin('parts', { routes: [stream] })] });
  // One connection, on which the second request waits for the end of the first.
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const { url } = host;
  const head = () =>
    new Promise<IncomingMessage>((resolve, reject) => {
      request(`${url}/parts`, { method: 'HEAD', agent }, (reply) => resolve(reply.resume()))
        .on('error', reject)
        .end();
    });
  for (let i = 0; i < 2; i++) {
    const { statusCode, headers } = await head();
    expect([statusCode, headers['content-type']]).toEqual([200, 'text/event-stream']);
  }
  await expect.poll(() => isOpen).toBe(false);
  ended.resolve();
  agent.destroy();
});
