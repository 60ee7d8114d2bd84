import { defineRoute } from '@sibyl/plugin-kit';
import { generateSigner } from '@sibyl/ucan';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import {
  inSeconds,
  type KeyChoice,
  mintKey,
  registerKey as register,
} from './support/access-key.js';
import { useControlledHost } from './support/controlled-host.js';
import { testPlugin } from './support/plugin.js';
import { openRejectedSocket } from './support/session-socket.js';
import { openSession } from './support/stream.js';
import { TestUser } from './support/user.js';

const whoAmI = defineRoute({
  method: 'GET',
  path: '/surface/me',
  auth: 'access-key',
  summary: 'Returns the caller',
  reply: z.object({ did: z.string() }),
  handler: async ({ caller }) => ({ did: caller.did }),
});
const test = useControlledHost({ plugins: [testPlugin('surface', { routes: [whoAmI] })] });

const ask = async (headers: Record<string, string>) => {
  const reply = await fetch(`${test.host.url}/surface/me`, { headers });
  return { status: reply.status, body: await reply.json() };
};

const bearer = (key: string) => ({ authorization: `Bearer ${key}` });

describe('POST /keys', () => {
  it('registers a key; GET /keys lists it with its caveats, and last use once it was used', async () => {
    const user = new TestUser(test.host);
    const expiration = inSeconds(1000);
    const nb = { model: 'm', turnsPerDay: 3 };
    const key = mintKey(user, { nb, expiration });
    const { status, body } = await register(user, key, 'Editor');
    expect(status).toBe(200);
    expect(body).toMatchObject({ name: 'Editor', caveats: nb, expiration, turnsToday: 0 });
    expect(JSON.stringify(body)).not.toContain(key);
    const list = async () => (await user.request('GET', '/keys')).body.keys;
    expect(await list()).toEqual([body]);
    expect(await ask(bearer(key))).toEqual({ status: 200, body: { did: user.did } });
    expect(await list()).toEqual([{ ...body, lastUsedAt: expect.any(String) }]);
    expect((await new TestUser(test.host).request('GET', '/keys')).body).toEqual({ keys: [] });
  });

  it('accepts the same key again, under another name', async () => {
    const user = new TestUser(test.host);
    const key = mintKey(user);
    await register(user, key, 'one');
    await register(user, key, 'two');
    const { keys } = (await user.request('GET', '/keys')).body;
    expect(keys).toMatchObject([{ name: 'two' }]);
  });

  it.each<[string, KeyChoice, string]>([
    ['for another oracle', { audience: generateSigner().did }, 'another audience'],
    ['with another capability', { can: 'oracle/approve' }, 'exactly one capability'],
    ['with the capability *', { can: '*' }, 'exactly one capability'],
    ['without an expiry', { expiration: null }, 'must expire within 366 days'],
    ['with a late expiry', { expiration: inSeconds(400 * 86_400) }, 'must expire within 366 days'],
    ['that has expired', { expiration: inSeconds(-1) }, 'has expired'],
    ['with an unknown caveat', { nb: { weekday: 1 } }, 'weekday: unknown field'],
    ['with an invalid caveat', { nb: { turnsPerDay: 0 } }, 'turnsPerDay'],
  ])('refuses a key %s', async (_, choice, reason) => {
    const user = new TestUser(test.host);
    const { status, body } = await register(user, mintKey(user, choice));
    expect([status, body.code]).toEqual([400, 'validation_failed']);
    expect(body.message.join()).toContain(reason);
  });

  it('refuses a key that another user signed, and one with proofs', async () => {
    const [user, other] = [new TestUser(test.host), new TestUser(test.host)];
    expect((await register(user, mintKey(other))).body.code).toBe('foreign_delegation');
    const proof = mintKey(other, { audience: user.did });
    const derived = mintKey(user, { proofs: [proof], expiration: inSeconds(60) });
    expect((await register(user, derived)).body.message.join()).toContain('without proofs');
  });

  it('keeps at most 100 keys of one user', async () => {
    const user = new TestUser(test.host);
    for (let i = 0; i < 100; i++) expect((await register(user, mintKey(user))).status).toBe(200);
    expect((await register(user, mintKey(user))).body.code).toBe('too_many_access_keys');
  });
});

describe('an access key', () => {
  it('is accepted as a bearer and as x-api-key, only without X-Auth-Type', async () => {
    const user = new TestUser(test.host);
    const key = mintKey(user);
    await register(user, key);
    expect((await ask(bearer(key))).status).toBe(200);
    expect((await ask({ 'x-api-key': key })).status).toBe(200);
    expect((await ask({ ...bearer(key), 'x-auth-type': 'ucan' })).body.code).toBe(
      'invalid_invocation',
    );
    expect((await ask({ 'x-api-key': key, 'x-auth-type': 'ucan' })).status).toBe(401);
    expect((await ask(user.headers)).body).toEqual({ did: user.did });
    expect((await ask({ 'x-ucan-delegation': user.delegate() })).body).toEqual({ did: user.did });
  });

  it('that is not registered, or was revoked, gets 401, also together with a valid delegation', async () => {
    const user = new TestUser(test.host);
    const key = mintKey(user);
    const unknown = await ask({ ...bearer(key), 'x-ucan-delegation': user.delegate() });
    expect([unknown.status, unknown.body.code]).toEqual([401, 'invalid_access_key']);
    const { id } = (await register(user, key)).body;
    expect((await ask(bearer(key))).status).toBe(200);
    const stranger = new TestUser(test.host);
    expect((await stranger.request('DELETE', `/keys/${id}`)).body.code).toBe(
      'access_key_not_found',
    );
    expect((await user.request('DELETE', `/keys/${id}`)).body).toEqual({ ok: true });
    expect((await ask(bearer(key))).body.code).toBe('invalid_access_key');
    expect((await user.request('DELETE', `/keys/${id}`)).status).toBe(404);
    expect((await register(user, key)).body.message.join()).toContain('was revoked');
    expect((await ask(bearer('nonsense'))).body.code).toBe('invalid_access_key');
  });

  it('that is not registered or was revoked is refused, even if the user has others, which stay', async () => {
    const user = new TestUser(test.host);
    const [first, second, unknown] = [mintKey(user), mintKey(user), mintKey(user)];
    const { id } = (await register(user, first)).body;
    await register(user, second);
    expect((await ask(bearer(unknown))).body.code).toBe('invalid_access_key');
    await user.request('DELETE', `/keys/${id}`);
    expect((await ask(bearer(first))).body.code).toBe('invalid_access_key');
    expect((await ask(bearer(second))).status).toBe(200);
    expect((await user.request('GET', '/keys')).body.keys).toHaveLength(1);
  });

  it('is also ended by DELETE /delegations', async () => {
    const user = new TestUser(test.host);
    const key = mintKey(user);
    await register(user, key);
    await user.request('DELETE', '/delegations');
    expect((await ask(bearer(key))).status).toBe(401);
    expect((await user.request('GET', '/keys')).body.keys).toEqual([]);
  });

  it('is refused on every route of the host that does not accept access keys', async () => {
    const user = new TestUser(test.host);
    const sessionId = await openSession(user);
    const key = mintKey(user, { nb: { session: sessionId } });
    const { id } = (await register(user, key)).body;
    const document = await (await fetch(`${test.host.url}/docs/openapi.json`)).json();
    const refused: string[] = [];
    for (const { method, path, operation } of listOperations(document)) {
      const schemes = operation.security.flatMap((scheme) => Object.keys(scheme));
      if (schemes.length === 0 || schemes.includes('accessKey')) continue;
      const filled = path.replace('{sessionId}', sessionId).replace('{id}', id);
      const url = test.host.url + filled.replaceAll(/\{\w+\}/g, 'x');
      for (const headers of [bearer(key), { 'x-api-key': key }, { 'x-ucan-delegation': key }]) {
        const reply = await fetch(url, { method, headers });
        expect([method, path, reply.status]).toEqual([method, path, 401]);
      }
      refused.push(`${method} ${path}`);
    }
    expect(refused).toEqual(
      expect.arrayContaining(['GET /keys', 'POST /keys', 'GET /sessions', 'DELETE /delegations']),
    );
    expect(refused.length).toBeGreaterThan(20);
    expect((await user.request('GET', '/keys')).body.keys).toHaveLength(1);
    for (const auth of [{ invocation: key }, { ucanDelegation: key }])
      await openRejectedSocket(test.host.url, { query: { sessionId }, auth });
  });
});

interface Operation {
  readonly security: readonly object[];
}

interface ApiDocument {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

const listOperations = ({ paths }: ApiDocument) =>
  Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]) => {
      return { method: method.toUpperCase(), path, operation };
    }),
  );
