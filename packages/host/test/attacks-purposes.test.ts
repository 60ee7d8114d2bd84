import { defineTool, type PluginContext } from '@sibyl/plugin-kit';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { startHost, type TestHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';
import { openRejectedSocket, openSocket } from './support/session-socket.js';
import { openSession } from './support/stream.js';
import { TestUser } from './support/user.js';

describe('a token for a single call', () => {
  let host: TestHost;
  let services: PluginContext;
  const spender = testPlugin('spender', {
    getTools: (context) => {
      services = context;
      return [
        defineTool({
          name: 'may_call',
          description: 'Says whether the caller has delegated a capability.',
          inputSchema: z.object({ can: z.string(), with: z.string() }),
          run: async (wanted, { ucan }) => ({ isGranted: await ucan.hasCapability(wanted) }),
        }),
      ];
    },
  });
  beforeAll(async () => {
    host = await startHost({ plugins: [spender] });
  });
  afterAll(() => host.close());

  const delegate = (user: TestUser, ...cans: string[]) =>
    user.delegate({ capabilities: cans.map((can) => ({ can, with: user.did })) });

  /** Spent as a single-use token, with an ability that a delegation may have. */
  async function spent(user: TestUser): Promise<string> {
    const token = user.delegate({
      capabilities: [{ can: 'store/add', with: user.did }],
      ttlSeconds: 300,
    });
    const wanted = { can: 'store/add', with: user.did, issuer: user.did };
    expect(await services.ucan.acceptOnce(token, wanted)).toEqual({ ok: true });
    return token;
  }

  const kinds: readonly (readonly [string, (user: TestUser) => string | Promise<string>])[] = [
    ['mcp/call', (user) => delegate(user, 'mcp/call')],
    ['oracle/ask', (user) => delegate(user, 'oracle/ask')],
    ['mcp/* among others', (user) => delegate(user, 'store/add', 'mcp/*')],
    ['spent once', spent],
  ];

  /** Every route that the API document says needs a caller. */
  async function protectedRoutes() {
    const document = (await (await fetch(`${host.url}/docs/openapi.json`)).json()) as {
      paths: Record<string, Record<string, { security?: object[] }>>;
    };
    return Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods)
        .filter(([, { security }]) => security?.length)
        .map(([method]) => [method.toUpperCase(), path.replaceAll(/\{\w+\}/g, 'x')] as const),
    );
  }

  const fetchStatus = async (method: string, path: string, delegation: string) =>
    (await fetch(host.url + path, { method, headers: { 'x-ucan-delegation': delegation } })).status;

  it.each(kinds)('%s: logs in on no protected route', async (_, make) => {
    const routes = await protectedRoutes();
    expect(routes.length).toBeGreaterThan(10);
    const user = new TestUser(host);
    const token = await make(user);
    for (const [method, path] of routes)
      expect(await fetchStatus(method, path, token), `${method} ${path}`).toBe(401);
    // The routes do let a real delegation in; a new one for each, since one of them revokes it.
    for (const [method, path] of routes) {
      const real = delegate(user, 'store/add');
      expect(await fetchStatus(method, path, real), `${method} ${path}`).not.toBe(401);
    }
  });

  it.each(kinds)('%s: opens no socket', async (_, make) => {
    const user = new TestUser(host);
    const query = { sessionId: await openSession(user) };
    const token = await make(user);
    const refusal = await openRejectedSocket(host.url, { query, auth: { ucanDelegation: token } });
    expect(refusal.data).toMatchObject({ statusCode: 401, code: 'missing_authentication' });
    const auth = { ucanDelegation: delegate(user, '*') };
    await openSocket(host.url, { query, auth }).until('connected');
  });

  it.each(kinds)('%s: is not stored by POST /delegation', async (_, make) => {
    const user = new TestUser(host);
    const body = { raw: await make(user) };
    const stored = await user.request('POST', '/delegation', { body });
    expect([stored.status, stored.body.code]).toEqual([400, 'invalid_delegation']);
    expect(stored.body.message).toMatch(/invocation/);
    expect((await user.request('GET', '/delegation')).body).toEqual({ authorized: false });
  });

  it.each(kinds)('%s: is not used downstream', async (_, make) => {
    const user = new TestUser(host);
    const sessionId = await openSession(user);
    const ask = async (delegation: string) => {
      const message = `use may_call ${JSON.stringify({ can: 'store/add', with: user.did })}`;
      const headers = { 'x-ucan-delegation': delegation };
      const { body } = await user.request('POST', `/messages/${sessionId}`, {
        body: { message },
        headers,
      });
      return JSON.stringify(body);
    };
    expect(await ask(await make(user))).toContain('Is granted: false');
    expect(await ask(delegate(user, 'store/*'))).toContain('Is granted: true');
  });

  it('is rejected as soon as it is used, although it has logged in before', async () => {
    const user = new TestUser(host);
    const token = delegate(user, 'store/add');
    expect(await fetchStatus('GET', '/sessions', token)).toBe(200);
    const wanted = { can: 'store/add', with: user.did, issuer: user.did };
    const short = user.delegate({
      capabilities: [{ can: 'store/add', with: user.did }],
      ttlSeconds: 300,
    });
    expect(await fetchStatus('GET', '/sessions', short)).toBe(200);
    expect(await services.ucan.acceptOnce(short, wanted)).toEqual({ ok: true });
    expect(await fetchStatus('GET', '/sessions', short)).toBe(401);
    expect(await fetchStatus('GET', '/sessions', token)).toBe(200);
  });

  it('is logged with the reason, its CID and its issuer', async () => {
    const user = new TestUser(host);
    await fetchStatus('GET', '/sessions', delegate(user, 'mcp/call'));
    const lines = host.log.filter(({ did }) => did === user.did);
    expect(lines).toContainEqual(
      expect.objectContaining({
        reason: 'wrong_purpose',
        cid: expect.any(String),
        msg: expect.stringMatching(/presented as a delegation/),
      }),
    );
  });
});
