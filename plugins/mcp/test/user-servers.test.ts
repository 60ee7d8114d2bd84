import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import {
  type ControlledModel,
  startControlledModel,
} from '../../../packages/host/test/support/controlled-model.js';
import { startHost, type TestHost } from '../../../packages/host/test/support/host.js';
import { usePluginTables } from '../../../packages/host/test/support/plugin-tables.js';
import { openSession, stream } from '../../../packages/host/test/support/stream.js';
import {
  createTestDatabase,
  engines,
  type TestDatabase,
} from '../../../packages/host/test/support/test-database.js';
import { TestUser } from '../../../packages/host/test/support/user.js';
import { buildToolName } from '../src/server-tools.js';
import { UserServers, userServers } from '../src/user-servers.js';
import { type HttpMcpServer, startHttpServer } from './support/http-server.js';
import { startProtectedServer } from './support/protected-server.js';

const ADD = buildToolName('mine', 'add.numbers');
const SERVERS = '/mcp/servers';

let server: HttpMcpServer;
let model: ControlledModel;
let host: TestHost;
const headers: (string | undefined)[] = [];
const open: { close(): Promise<void> }[] = [];

beforeAll(async () => {
  model = await startControlledModel();
  server = await startHttpServer({
    intercept: (request) => {
      headers.push(request.headers['x-api-key']?.toString());
      return false;
    },
  });
});

afterAll(async () => {
  model?.close();
  await server?.close();
});

afterEach(async () => {
  for (const part of open.splice(0)) await part.close();
});

const addServer = (user: TestUser, body: object = {}) =>
  user.request('POST', SERVERS, { body: { name: 'mine', url: server.url, ...body } });

async function talk(user: TestUser, ...calls: { name: string; input: object }[]) {
  // A turn waits only briefly for a server that is not connected.
  const readStates = async () =>
    (await user.request('GET', '/mcp/servers')).body.servers.map(
      ({ state }: { state: string }) => state,
    );
  await expect.poll(readStates).not.toContain('unavailable');
  const reply = await stream(user, await openSession(user), { message: 'Go' });
  const asked = await model.next();
  if (calls.length === 0) asked.answer('ok');
  else asked.call(...calls);
  const after = calls.length === 0 ? asked : await model.next();
  if (calls.length > 0) after.answer('ok');
  await reply.toEnd();
  return { tools: asked.tools, results: after.results };
}

describe.each(engines)('UserServers on %s', (engine) => {
  const test = usePluginTables(engine, { name: 'mcp', tables: [userServers] });

  it('add stores no server whose headers cannot be stored, and the next attempt succeeds', async () => {
    const owner = 'did:example:alice';
    const stored = new Map<string, string | undefined>();
    let isAway = true;
    const secrets = () => ({
      get: async (name: string) => stored.get(name),
      set: async (name: string, value: string | undefined) => {
        if (isAway && value !== undefined) throw new Error('the store is away');
        stored.set(name, value);
      },
    });
    const servers = new UserServers({ database: test.database, secrets, maxPerUser: 1 });
    const added = { name: 'mine', url: 'https://example.com/', headers: { 'x-api-key': 'secret' } };
    await expect(servers.add(owner, added)).rejects.toThrow('the store is away');
    expect(await servers.list(owner)).toEqual([]);
    isAway = false;
    await servers.add(owner, added);
    expect(await servers.find(owner, 'mine')).toMatchObject({ server: { headers: added.headers } });
  });

  it('add stores the headers that a host had not stored when it died, and refuses a server that exists', async () => {
    const owner = 'did:example:bob';
    const stored = new Map<string, string | undefined>();
    const died = Promise.withResolvers<void>();
    let isDying = true;
    const secrets = () => ({
      get: async (name: string) => stored.get(name),
      set: async (name: string, value: string | undefined) => {
        if (isDying) await died.promise;
        stored.set(name, value);
      },
    });
    const servers = new UserServers({ database: test.database, secrets, maxPerUser: 1 });
    const added = { name: 'mine', url: 'https://example.com/', headers: { 'x-api-key': 'secret' } };
    void servers.add(owner, added);
    await expect.poll(async () => (await servers.list(owner)).length).toBe(1);
    isDying = false;
    await servers.add(owner, added);
    expect(await servers.find(owner, 'mine')).toMatchObject({ server: { headers: added.headers } });
    for (const change of [
      {},
      { headers: { 'x-api-key': 'other' } },
      { url: 'https://other.example/' },
    ])
      await expect(servers.add(owner, { ...added, ...change })).rejects.toThrow(
        'named mine already',
      );
  });
});

describe.each(engines)('servers of users on %s', (engine) => {
  let database: TestDatabase;

  beforeAll(async () => {
    database = await createTestDatabase(engine);
    host = await startHost({
      env: {
        ...model.env,
        ...database.env,
        MCP_SERVERS: JSON.stringify({ taken: { url: server.url } }),
        OUTGOING_ALLOW: '127.0.0.1',
        MCP_USER_SERVERS: 'true',
        MCP_USER_SERVERS_ALLOW: '127.0.0.1',
        MCP_SERVERS_PER_USER: '3',
      },
    });
  });

  afterAll(async () => {
    await host?.close();
    await database?.drop();
  });

  it('POST /mcp/servers adds one whose tools only this user has', async () => {
    const [alice, bob] = [new TestUser(host), new TestUser(host)];
    const { status, body } = await addServer(alice, { headers: { 'x-api-key': 'secret' } });
    expect({ status, body }).toEqual({
      status: 201,
      body: { name: 'mine', url: server.url, own: true, state: 'ready' },
    });
    expect(headers).toContain('secret');
    const call = { name: ADD, input: { a: 20, b: 22 } };
    expect((await talk(alice, call)).results).toEqual(['"42"']);
    const other = await talk(bob);
    expect(other.tools.filter((name) => name.startsWith('mine__'))).toEqual([]);
    const { body: listed } = await bob.request('GET', SERVERS);
    expect(listed.servers).toEqual([{ name: 'taken', own: false, state: 'ready', tools: 9 }]);
    const { body: own } = await alice.request('GET', SERVERS);
    expect(own.servers[1]).toEqual({
      name: 'mine',
      url: server.url,
      own: true,
      state: 'ready',
      tools: 9,
    });
  });

  it('DELETE /mcp/servers/:name removes it for its user alone', async () => {
    const [alice, bob] = [new TestUser(host), new TestUser(host)];
    await addServer(alice);
    await addServer(bob);
    expect((await alice.request('DELETE', `${SERVERS}/mine`)).status).toBe(200);
    expect((await alice.request('DELETE', `${SERVERS}/mine`)).status).toBe(404);
    expect((await alice.request('DELETE', `${SERVERS}/taken`)).status).toBe(404);
    expect((await talk(alice)).tools).not.toContain(ADD);
    expect((await talk(bob)).tools).toContain(ADD);
  });

  it.each([
    ['a name of the operator', { name: 'taken' }, 'There is a server named taken already'],
    ['an invalid name', { name: 'No!' }, 'name: a-z, 0-9'],
    ['a program', { command: 'sh' }, 'command'],
    ['another protocol', { url: 'file:///etc/passwd' }, 'url'],
    ['a private address', { url: 'https://10.0.0.1/mcp' }, 'No MCP server answers'],
    ['http beyond what is allowed', { url: 'http://example.com/mcp' }, 'No MCP server answers'],
    ['nothing behind it', { url: 'http://127.0.0.1:1/mcp' }, 'No MCP server answers'],
    ['settings of operators', { protected: false }, 'protected'],
    ['a header with a line break', { headers: { a: 'b\r\nc: d' } }, 'headers'],
    [
      'headers that are too long together',
      { headers: Object.fromEntries(['a', 'b', 'c', 'd'].map((name) => [name, '"'.repeat(4000)])) },
      'headers: at most 16000 characters',
    ],
  ])('POST /mcp/servers refuses one with %s', async (_, body, message) => {
    const { status, body: answer } = await addServer(new TestUser(host), body);
    expect(status).toBe(400);
    expect(JSON.stringify(answer.message)).toContain(message);
  });

  it('POST /mcp/servers keeps the limit for each user, also of simultaneous requests', async () => {
    const user = new TestUser(host);
    const names = ['a', 'b', 'c', 'd', 'e', 'f'];
    const added = await Promise.all(names.map((name) => addServer(user, { name })));
    expect(added.filter(({ status }) => status === 201)).toHaveLength(3);
    const refused = added.find(({ status }) => status === 400);
    expect(refused?.body.message).toContain('remove one first');
    expect((await addServer(user, { name: 'a' })).status).toBe(400);
  });

  it('POST /mcp/servers is limited in time', async () => {
    const user = new TestUser(host);
    const tries = Array.from({ length: 12 }, () => addServer(user, { name: 'taken' }));
    const refused = (await Promise.all(tries)).filter(({ status }) => status === 429);
    expect(refused.length).toBeGreaterThan(0);
    for (const { headers } of refused)
      expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
  });

  it('a server with OAuth is added, and signed in at', async () => {
    const vault = await startProtectedServer();
    open.push(vault);
    const user = new TestUser(host);
    const { body } = await addServer(user, { name: 'vault', url: vault.url });
    expect(body.state).toBe('sign_in_required');
    expect((await talk(user)).tools).toContain('mcp_sign_in');
    const started = await user.request('POST', `${SERVERS}/vault/sign-in`);
    const { headers: sent } = await fetch(started.body.url, { redirect: 'manual' });
    const callback = new URL(sent.get('location') ?? '');
    const page = await fetch(`${host.url}${callback.pathname}${callback.search}`);
    const code = /<code>(.*)<\/code>/.exec(await page.text())?.[1];
    await user.request('POST', `${SERVERS}/vault/sign-in/confirm`, { body: { code } });
    expect((await talk(user)).tools).toContain(buildToolName('vault', 'add.numbers'));
  });

  it('headers of a server are not sent to the authorization server that it names', async () => {
    const seen: (string | undefined)[] = [];
    const other = await startHttpServer({
      intercept: ({ headers: sent, url = '' }, response) => {
        seen.push(sent['x-api-key']?.toString());
        const { origin } = new URL(other.url);
        const endpoints = { authorization_endpoint: `${origin}/a`, token_endpoint: `${origin}/t` };
        const metadata = url.startsWith('/resource')
          ? { resource: guarded.url, authorization_servers: [origin] }
          : { issuer: origin, response_types_supported: ['code'], ...endpoints };
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(JSON.stringify(metadata));
        return true;
      },
    });
    const guarded = await startHttpServer({
      intercept: (request, response) => {
        headers.push(request.headers['x-api-key']?.toString());
        const challenge = `Bearer resource_metadata="${new URL('/resource', other.url)}"`;
        response.writeHead(401, { 'www-authenticate': challenge }).end();
        return true;
      },
    });
    open.push(other, guarded);
    const user = new TestUser(host);
    const server = { name: 'guarded', url: guarded.url, headers: { 'x-api-key': 'secret' } };
    expect((await addServer(user, server)).body.state).toBe('sign_in_required');
    headers.splice(0);
    await user.request('POST', `${SERVERS}/guarded/sign-in`);
    expect(headers).toContain('secret');
    expect(seen.length).toBeGreaterThan(1);
    expect(seen).not.toContain('secret');
  });
});

describe('MCP_USER_SERVERS', () => {
  it('gives users no route to add servers by default', async () => {
    const plain = await startHost({ env: { MCP_SERVERS: '{}', FEATURES: 'mcp=true' } });
    open.push(plain);
    const { status } = await addServer(new TestUser(plain));
    expect(status).toBe(405);
  });

  it('does not open to users what OUTGOING_ALLOW opens to the operator', async () => {
    const strict = await startHost({
      env: { MCP_USER_SERVERS: 'true', OUTGOING_ALLOW: '127.0.0.1' },
    });
    open.push(strict);
    const before = server.sessions.length;
    const { status, body } = await addServer(new TestUser(strict));
    expect(status).toBe(400);
    expect(body.message).toContain('No MCP server answers');
    expect(server.sessions).toHaveLength(before);
  });
});
