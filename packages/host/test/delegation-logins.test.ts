import type { Capability } from '@sibyl/ucan';
import { Delegation, delegate } from '@ucanto/core';
import { ed25519 } from '@ucanto/principal';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bundledVariables } from './support/bundled-variables.js';
import { startHost, type TestHost } from './support/host.js';
import { createSchedule, readSchedule } from './support/schedules.js';
import { openRejectedSocket } from './support/session-socket.js';
import { openSession } from './support/stream.js';
import { TestUser } from './support/user.js';

/**
 * What a login by delegation may do: read, chat within the interface of existing clients, and stop things. A new route must be
 * added here, or declare that it needs the caller's own key.
 */
const OPEN: ReadonlySet<string> = new Set([
  // The interface.
  'GET /sessions',
  'POST /sessions',
  'PATCH /sessions/{sessionId}',
  'DELETE /sessions/{sessionId}',
  'POST /sessions/{sessionId}/fork',
  'GET /sessions/{sessionId}/messages',
  'GET /sessions/{sessionId}/run',
  'GET /sessions/events',
  'GET /messages/{sessionId}',
  'POST /messages/{sessionId}',
  'POST /messages/abort',
  'PUT /messages/{sessionId}/{messageId}/feedback',
  'DELETE /messages/{sessionId}/{messageId}/feedback',
  'GET /delegation',
  'POST /delegation',
  'DELETE /delegation',
  'GET /user-preferences',
  'PATCH /user-preferences',
  // What a conversation needs.
  'GET /runs/{runId}',
  'DELETE /runs/{runId}',
  'GET /questions',
  'POST /questions/{id}',
  'POST /files',
  'GET /files/{fileId}',
  'GET /files/{fileId}/info',
  // Denies; an approval has its own signature.
  'POST /approvals/{id}',
  // Admits only the user.
  'POST /invitations',
  // Reads.
  'GET /search',
  'GET /files',
  'GET /approvals',
  'GET /approvals/{id}',
  'GET /approvals/{id}/receipt',
  'GET /activity',
  'GET /rules',
  'GET /delegations',
  'GET /keys',
  'GET /usage',
  'GET /me/import/{id}',
  'GET /me/sharing',
  'GET /memory',
  'GET /schedules',
  'GET /schedules/{id}',
  'GET /schedules/{id}/runs',
  'GET /mcp/servers',
  'GET /claims',
  'GET /credits',
  'GET /matrix/links',
  // Only to pause; the body decides.
  'PATCH /schedules/{id}',
  // Conversations in other protocols. What they do later, such as push notifications, needs the own key too.
  'POST /a2a',
  'POST /a2a/{action}',
  'GET /a2a/tasks',
  'GET /a2a/tasks/{task}',
  'POST /a2a/tasks/{task}',
  'POST /a2a/tasks/{taskId}/pushNotificationConfigs',
  'GET /a2a/tasks/{taskId}/pushNotificationConfigs',
  'GET /a2a/tasks/{taskId}/pushNotificationConfigs/{configId}',
  'DELETE /a2a/tasks/{taskId}/pushNotificationConfigs/{configId}',
  'POST /v2/agent/run',
  'GET /v2/runs/{runId}',
  'POST /v2/runs/{runId}/cancel',
  'GET /v2/agent/capabilities',
  'POST /ui/chat',
  'GET /ui/chat/{id}/stream',
  'DELETE /ui/chat/{id}/stream',
  'GET /mcp',
  'POST /mcp',
  'GET /v1/models',
  'GET /v1/models/{model}',
  'POST /v1/chat/completions',
  'POST /v1/responses',
  'GET /v1/responses/{id}',
  'POST /v1/responses/{id}/cancel',
  'DELETE /v1/responses/{id}',
]);

describe('a login by delegation', () => {
  let host: TestHost;
  beforeAll(async () => {
    host = await startHost({
      env: Object.assign(
        { MATRIX_BASE_URL: 'http://127.0.0.1:1', MATRIX_ACCESS_TOKEN: 'token' },
        ...Object.values(bundledVariables),
      ),
    });
  });
  afterAll(() => host.close());

  interface Operation {
    readonly route: string;
    readonly schemes: readonly string[];
    readonly codes: string;
  }

  /** Every route that needs a caller. */
  async function listOperations(): Promise<readonly Operation[]> {
    const { paths } = (await (await fetch(`${host.url}/docs/openapi.json`)).json()) as {
      paths: Record<
        string,
        Record<string, { security?: object[]; responses: Record<string, { description: string }> }>
      >;
    };
    return Object.entries(paths).flatMap(([path, operations]) =>
      Object.entries(operations).flatMap(([method, { security = [], responses }]) => ({
        route: `${method.toUpperCase()} ${path}`,
        schemes: security.flatMap(Object.keys),
        codes: responses[403]?.description ?? '',
      })),
    );
  }

  async function call(route: string, token: string, body?: unknown) {
    const [method = '', path = ''] = route.split(' ');
    const response = await fetch(host.url + path.replaceAll(/\{\w+\}/g, 'x'), {
      method,
      headers: { 'x-ucan-delegation': token, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: await response.json().catch(() => undefined) };
  }

  it('every route of the API document is open to it, or refuses it with own_key_required', async () => {
    const operations = (await listOperations()).filter(({ schemes }) => schemes.length > 0);
    const closed = operations.filter(({ route }) => !OPEN.has(route));
    const isOperators = ({ route }: Operation) => route.includes(' /operator/');
    const answers: unknown[] = [];
    for (const { route, schemes, codes } of closed.filter((each) => !isOperators(each))) {
      const { status, body } = await call(route, new TestUser(host).delegate());
      const isDocumented = !schemes.includes('delegation') && codes.includes('own_key_required');
      answers.push([route, status, body?.code, isDocumented]);
    }
    expect(answers).toEqual(
      answers.map((answer) => [(answer as string[])[0], 403, 'own_key_required', true]),
    );
    for (const { route } of closed.filter(isOperators))
      expect((await call(route, new TestUser(host).delegate())).status).toBe(403);
    const routes = operations.map(({ route }) => route);
    expect([...OPEN].filter((route) => !routes.includes(route))).toEqual([]);
    const open = operations.filter(({ route }) => OPEN.has(route));
    expect(open.filter(({ schemes }) => !schemes.includes('delegation'))).toEqual([]);
  });

  it('PATCH /schedules/:id only pauses', async () => {
    const alice = new TestUser(host);
    const { id } = await createSchedule(alice);
    const token = alice.delegate({ ttlSeconds: null });
    const patch = (body: object) => call(`PATCH /schedules/${id}`, token, body);
    for (const body of [
      { name: 'x' },
      { message: 'x' },
      { status: 'active' },
      { status: 'paused', resultUrl: 'https://thief.example' },
      {},
    ])
      expect((await patch(body)).body).toMatchObject({ code: 'own_key_required' });
    expect(await readSchedule(alice, id)).toMatchObject({ name: 'Test', status: 'active' });
    expect((await patch({ status: 'paused' })).body).toMatchObject({ status: 'paused' });
  });
});

describe('x-ucan-delegation and POST /delegation', () => {
  let host: TestHost;
  let alice: TestUser;
  beforeAll(async () => {
    host = await startHost();
    alice = new TestUser(host);
  });
  afterAll(() => host.close());

  const auth = { can: '*', with: 'ixo:oracle' } as const;
  const signAuth = (ttlSeconds: number | null, ...more: Capability[]) =>
    alice.delegate({ capabilities: [auth, ...more], ttlSeconds });
  const login = async (token: string) =>
    (await fetch(`${host.url}/sessions`, { headers: { 'x-ucan-delegation': token } })).status;
  const store = async (raw: string) => {
    const { status, body } = await alice.request('POST', '/delegation', { body: { raw } });
    return [status, body.message];
  };

  it('an auth invocation logs in as one, and is neither recorded, stored nor used as a delegation', async () => {
    const token = alice.mint();
    expect(await login(token)).toBe(200);
    expect(await store(token)).toEqual([400, expect.stringMatching(/raw is an invocation/)]);
    const headers = { 'x-ucan-delegation': token };
    expect((await fetch(`${host.url}/me/export`, { headers })).status).toBe(200);
    expect((await alice.request('GET', '/delegations')).body).toEqual({ delegations: [] });
    expect((await alice.request('GET', '/delegation')).body).toEqual({ authorized: false });
  });

  it.each<[string, () => string]>([
    ['for an hour', () => signAuth(3600)],
    ['without an expiry', () => signAuth(null)],
    ['with another capability', () => signAuth(300, { can: 'store/*', with: alice.did })],
    [
      'with caveats',
      () => alice.delegate({ capabilities: [{ ...auth, nb: { a: 1 } }], ttlSeconds: 300 }),
    ],
  ])(
    'an auth invocation %s logs in neither by HTTP nor by socket, and is not stored',
    async (_, sign) => {
      const token = sign();
      expect(await login(token)).toBe(401);
      expect(await store(token)).toEqual([400, expect.stringMatching(/raw is an invocation/)]);
      const query = { sessionId: await openSession(alice) };
      const refusal = await openRejectedSocket(host.url, {
        query,
        auth: { ucanDelegation: token },
      });
      expect(refusal.data).toMatchObject({ code: 'missing_authentication' });
    },
  );

  const signMany = (length: number) =>
    alice.delegate({
      capabilities: Array.from({ length }, (_, n) => ({ can: `store/a${n}`, with: alice.did })),
    });

  it.each([17, 56])('a delegation of %i capabilities logs in and is stored', async (count) => {
    const token = signMany(count);
    expect(await login(token)).toBe(200);
    expect(await store(token)).toEqual([200, undefined]);
  });

  it('64 short capabilities log in, 65 do not, and POST /delegation says why', async () => {
    // Our own minter refuses more than 64.
    const issuer = await ed25519.generate();
    const sign = async (length: number) => {
      const made = await delegate({
        issuer,
        audience: { did: () => host.did as `did:key:${string}` },
        capabilities: Array.from({ length }, (_, n) => ({
          can: 'a/b' as const,
          with: `ixo:${n}` as const,
        })) as never,
        expiration: Math.floor(Date.now() / 1000) + 300,
      });
      const { ok } = await Delegation.archive(made);
      return Buffer.from(ok as Uint8Array).toString('base64');
    };
    const post = async (raw: string) => {
      const response = await fetch(`${host.url}/delegation`, {
        method: 'POST',
        headers: { 'x-ucan-delegation': alice.delegate(), 'content-type': 'application/json' },
        body: JSON.stringify({ raw }),
      });
      return (await response.json()) as { code?: string; message?: string };
    };
    expect(await login(await sign(64))).toBe(200);
    expect(await post(await sign(64))).toMatchObject({ code: 'foreign_delegation' });
    expect(await login(await sign(65))).toBe(401);
    expect(await post(await sign(65))).toMatchObject({
      message: expect.stringMatching(/more than 64 capabilities/),
    });
  });
});
