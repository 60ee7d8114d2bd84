import { randomUUID } from 'node:crypto';
import { defineTool, type OraclePlugin, sharedKey } from '@sibyl/plugin-kit';
import { defineTable, text } from '@sibyl/plugin-kit/tables';
import { createSafeFetch } from '@sibyl/safe-fetch';
import { generateSigner } from '@sibyl/ucan';
import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { testPlugin } from '../../test/support/plugin.js';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import { finishTestRun, startTestRun } from '../../test/support/test-runs.js';
import { OracleIdentity } from '../auth/oracle-identity.js';
import { createHostId } from '../bus/host-bus.js';
import { loadPlugins } from './load-plugins.js';
import type { HostServices } from './plugin-context.js';
import { selectPlugins } from './select-plugins.js';

describe.each(engines)('setting up plugins on %s', (engine) => {
  const test = useStore(engine);
  const log: string[] = [];

  function load(plugins: readonly OraclePlugin[], more: Partial<HostServices> = {}) {
    const { selected } = selectPlugins({
      plugins,
      bundled: 0,
      features: {},
      manifestOverrides: {},
      env: {},
    });
    return loadPlugins(selected, {
      logger: pino({}, { write: (line) => void log.push(line) }),
      oracle: new OracleIdentity('Pythia', undefined, generateSigner()),
      publicUrl: 'https://oracle.example',
      store: test.store,
      fetch: createSafeFetch(),
      ucan: {} as HostServices['ucan'],
      llm: {} as HostServices['llm'],
      embeddings: undefined,
      models: {} as HostServices['models'],
      bus: {} as HostServices['bus'],
      liveness: {} as HostServices['liveness'],
      grants: {} as HostServices['grants'],
      authority: {} as HostServices['authority'],
      holders: {} as HostServices['holders'],
      turns: new Promise(() => {}),
      ...more,
    });
  }

  const tool = (name: string) =>
    defineTool({ name, description: 'd', inputSchema: z.object({}), run: () => 1 });

  it('loadPlugins gives setup the address of the host, and the secrets of each user', async () => {
    const owner = `did:key:${randomUUID()}`;
    const seen: unknown[] = [];
    const read = (name: string, value?: string) =>
      testPlugin(name, {
        setup: async ({ publicUrl, secrets }) => {
          if (value) await secrets(owner).set('token', value);
          seen.push([publicUrl, await secrets(owner).get('token')]);
          seen.push(await secrets('did:key:other').get('token'));
        },
      });
    await load([read('first', 'mine'), read('second')]);
    const url = 'https://oracle.example';
    expect(seen).toEqual([[url, 'mine'], undefined, [url, undefined], undefined]);
  });

  it('hosts.findDead names a dead host once its turns have ended, and nothing that is not the id of a host', async () => {
    const found: (readonly string[])[] = [];
    const [hostId, alive] = [createHostId(), createHostId()];
    const look = testPlugin('look', {
      setup: async ({ hosts }) =>
        void found.push(await hosts.findDead([randomUUID(), hostId, alive])),
    });
    const liveness = {
      findDeadHosts: async (ids: readonly string[]) => ids.filter((id) => id !== alive),
    };
    const dead = await test.another({ hostId });
    const { key } = await startTestRun(dead);
    await load([look], { liveness });
    await finishTestRun(dead.runs, key);
    await load([look], { liveness });
    expect(found).toEqual([[], [hostId]]);
  });

  it('loadPlugins calls the hooks of each plugin in order, with the shared state of earlier plugins', async () => {
    const seen: unknown[] = [];
    const base = testPlugin('base', { getSharedState: () => ({ ledger: 'the ledger' }) });
    const other = testPlugin('other', { getSharedState: () => ({ secret: 1 }) });
    const top = testPlugin('top', {
      dependsOn: ['base'],
      getTools: async ({ shared, availablePlugins, oracle }) => {
        seen.push([oracle.name, shared.get(sharedKey('ledger'))]);
        expect([...availablePlugins]).toEqual(['other', 'base', 'top']);
        return [tool('weigh')];
      },
    });
    const { plugins } = await load([other, top, base]);
    expect(plugins.map(({ name }) => name)).toEqual(['other', 'base', 'top']);
    expect(plugins[2]?.tools.map(({ name }) => name)).toEqual(['weigh']);
    expect(seen).toEqual([['Pythia', 'the ledger']]);
  });

  it('loadPlugins calls hooks as methods, so that a plugin may be a class', async () => {
    class Counter {
      readonly name = 'counter';
      readonly version = '1.0.0';
      readonly manifest = testPlugin('counter', {}).manifest;
      private readonly tools = [tool('count')];
      getTools() {
        return this.tools;
      }
    }
    const { plugins } = await load([new Counter()]);
    expect(plugins[0]?.tools).toHaveLength(1);
  });

  it('loadPlugins creates the tables of all plugins first', async () => {
    let kept: unknown;
    const notes = testPlugin('notes', {
      tables: [defineTable('notes_pages', { owner: text(), id: text() }, { key: ['owner', 'id'] })],
      getTools: async ({ database }) => {
        await database.write((tables) =>
          tables.insertInto('notes_pages').values({ owner: 'did:a', id: 'x' }).execute(),
        );
        kept = await database.tables.selectFrom('notes_pages').selectAll().execute();
        return [];
      },
    });
    await load([notes]);
    expect(kept).toEqual([{ owner: 'did:a', id: 'x' }]);
  });

  it('loadPlugins lets one plugin provide the room state', async () => {
    const place = { owner: newOwner() };
    const rooms = { read: async () => ({ from: 'matrix' }), update: async () => ({}) };
    const read: unknown[] = [];
    const reader = testPlugin('reader', {
      getTools: async (context) => {
        read.push(await context.rooms.read(place, 'key'));
        return [];
      },
    });
    await load([reader]);
    await load([reader, testPlugin('matrix', { getRoomState: () => rooms })]);
    expect(read).toEqual([undefined, { from: 'matrix' }]);
    const second = testPlugin('second', { getRoomState: () => rooms });
    await expect(
      load([testPlugin('matrix', { getRoomState: () => rooms }), second]),
    ).rejects.toThrow(/plugin second: the plugin matrix already stores the state of rooms/);
  });

  it('loadPlugins reports all issues together, and closes the plugins that it has set up', async () => {
    const closed: string[] = [];
    const first = testPlugin('first', {
      close: () => void closed.push('first'),
      getTools: () => [tool('same'), tool('load_capability')],
      getSharedState: () => ({ key: 1 }),
      getSubAgents: () => [{ name: 'tax', description: 'd', prompt: 'p' }],
    });
    const second = testPlugin('second', {
      getTools: () => [tool('same'), tool('call_tax_agent')],
      getSharedState: () => ({ key: 2 }),
    });
    const throwing = testPlugin('throwing', {
      getMiddlewares: () => {
        throw new Error('not today');
      },
    });
    const dependent = testPlugin('dependent', {
      dependsOn: ['throwing'],
      getTools: () => {
        throw new Error('never asked');
      },
    });
    const failure = await load([first, second, throwing, dependent]).catch((error) => error);
    expect(failure.message).toMatch(/5 things are wrong/);
    for (const text of [
      'plugin first: its tool load_capability is called like one of the host',
      'plugin second: its tool same is called like one of the plugin first',
      'plugin second: its tool call_tax_agent is called like one of the plugin first',
      'plugin second: it shares key, which the plugin first shares already',
      'plugin throwing: getMiddlewares failed: not today',
    ])
      expect(failure.message).toContain(text);
    expect(failure.message).not.toContain('never asked');
    expect(closed).toEqual(['first']);
  });

  it.each<[string, object, RegExp]>([
    ['tools that are none', { getTools: () => [null] }, /getTools returned .*tool 1: not a tool/],
    ['no list', { getTools: () => 'tools' }, /not an array of tools/],
    ['a bad name', { getTools: () => [tool('a b')] }, /tool a b: its name must consist/],
    [
      'a misspelled member',
      { getTools: () => [{ ...tool('a'), needsAproval: true }] },
      /tool a: unknown member needsAproval: a tool has name, .*needsApproval/,
    ],
    [
      'a misspelled wrapper',
      { getMiddlewares: () => [{ name: 'm', wrapTools: () => undefined }] },
      /middleware m: unknown member wrapTools: a middleware has .*wrapTool$/m,
    ],
    ['no run', { getTools: () => [{ ...tool('a'), run: 1 }] }, /tool a: it has no run function/],
    [
      'an object of schemas',
      { getTools: () => [{ ...tool('a'), inputSchema: { text: z.string() } }] },
      /tool a: its inputSchema is an object of schemas: wrap it in z.object\(\)/,
    ],
    [
      'input of another type',
      { getTools: () => [{ ...tool('a'), inputSchema: z.string() }] },
      /tool a: its inputSchema is not of an object, but of: string/,
    ],
    [
      'a body without a schema',
      {
        routes: [
          { method: 'POST', path: '/a', auth: 'user', summary: 'A', body: { a: z.string() } },
        ],
      },
      /route 1: its body is not a schema, such as z.object\(\)/,
    ],
    ['a bad agent', { getSubAgents: () => [{ name: 'Tax' }] }, /sub-agent Tax: its name/],
    [
      'no middleware',
      { getMiddlewares: () => [{ name: 'm', wrapModel: 1 }] },
      /wrapModel is not a function/,
    ],
    [
      'a middleware with an unknown onFailure',
      { getMiddlewares: () => [{ name: 'm', onFailure: 'ignore' }] },
      /middleware m: its onFailure must be 'fail' or 'skip'/,
    ],
    [
      'a misspelled condition',
      { when: { client: ['slack'] } },
      /when returned an invalid value: unknown member client: a condition has clients, user/,
    ],
    [
      'a condition with text for a list',
      { when: () => ({ clients: 'slack' }) },
      /clients is not a list/,
    ],
    ['a condition of nothing', { when: { attachments: false } }, /attachments must be true/],
    ['a gate without a door', { getMessageGate: () => ({}) }, /it has no admit function/],
    ['no modules', { getNestModules: () => [1] }, /Nest module 1: not a Nest module/],
    ['no routes', { getAuthExcludedRoutes: () => [1] }, /not an array of paths/],
    [
      'a route with a misspelled method',
      { getAuthExcludedRoutes: () => [{ path: '/odd', method: 'PSOT' }] },
      /getAuthExcludedRoutes returned .*the method of \/odd must be a member of RequestMethod/,
    ],
    [
      'a route with a method that does not exist',
      { getAuthExcludedRoutes: () => ['/a', { path: '/odd', method: undefined }] },
      /the method of \/odd must be/,
    ],
    [
      'a route with a misspelled field',
      { getAuthExcludedRoutes: () => [{ path: '/odd', methods: 1 }] },
      /unknown member methods: a route has path, method/,
    ],
    ['no state', { getSharedState: () => [] }, /getSharedState returned .*not an object/],
    [
      'tables of others',
      {
        tables: [defineTable('sessions', { owner: text() }, { key: ['owner'] })],
      },
      /its tables could not be created: The table sessions is not the plugin odd's/,
    ],
  ])('refuses %s', async (_, hooks, text) => {
    const failing = load([testPlugin('odd', hooks as Partial<OraclePlugin>)]);
    await expect(failing).rejects.toThrow(text);
    await expect(failing).rejects.toThrow(/plugin odd: .*\n +→ Fix it, or switch it off with/);
  });

  it('LoadedPlugins.close closes plugins in reverse order, even if one fails', async () => {
    const closed: string[] = [];
    const closing = (name: string, fault?: Error) =>
      testPlugin(name, {
        close: () => {
          closed.push(name);
          if (fault) throw fault;
        },
        getNestModules: () => [EmptyModule],
      });
    const { plugins, close } = await load([
      closing('a'),
      closing('b', new Error('stuck')),
      closing('c'),
    ]);
    expect(plugins[0]?.nestModules).toEqual([EmptyModule]);
    await close();
    await close();
    expect(closed).toEqual(['c', 'b', 'a']);
    expect(log.join()).toMatch(/"plugin":"b".*failed to close/);
  });
});

class EmptyModule {}
