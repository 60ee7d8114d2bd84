import { mintDelegation } from '@sibyl/ucan';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startHost, type TestHost } from './support/host.js';
import { openRejectedSocket } from './support/session-socket.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

let database: TestDatabase;
let host: TestHost;

const store = (user: TestUser, raw: string, more: object = {}) =>
  user.request('POST', '/delegation', { body: { raw, ...more } });
const status = async (user: TestUser) => (await user.request('GET', '/delegation')).body;
const inOneHour = () => Math.floor(Date.now() / 1000) + 3600;
/** What a client gets that has nothing but a delegation. */
const loginWith = async (raw: string) =>
  (await fetch(`${host.url}/sessions`, { headers: { 'x-ucan-delegation': raw } })).status;

describe.each(engines)('on %s', (engine) => {
  beforeAll(async () => {
    database = await createTestDatabase(engine);
    host = await startHost({ env: database.env });
  });
  afterAll(async () => {
    await host.close();
    await database.drop();
  });

  describe('without an expiry', () => {
    it('POST /delegation accepts it, and GET /delegation shows no expiration', async () => {
      const alice = new TestUser(host);
      const stored = await store(alice, alice.delegate({ ttlSeconds: null }));
      expect([stored.status, stored.body]).toEqual([200, { ok: true }]);
      expect(await status(alice)).toEqual({ authorized: true });
      const { body } = await alice.request('GET', '/delegations');
      const [{ expiration, isCurrent }] = body.delegations;
      expect({ expiration, isCurrent }).toEqual({ expiration: undefined, isCurrent: true });
    });

    it('logs in until it is revoked', async () => {
      const alice = new TestUser(host);
      const raw = alice.delegate({ ttlSeconds: null });
      expect(await loginWith(raw)).toBe(200);
      await alice.request('DELETE', '/delegations');
      expect(await loginWith(raw)).toBe(401);
    });

    it('POST /delegation rejects a body with an expiration', async () => {
      const alice = new TestUser(host);
      const { body } = await store(alice, alice.delegate({ ttlSeconds: null }), {
        expiration: inOneHour(),
      });
      expect(body.message).toEqual([expect.stringMatching(/^expiration: .*never expires/)]);
    });
  });

  describe.each([
    ['in milliseconds', Date.now() + 3_600_000],
    ['beyond what dates can hold', 8_640_000_000_001],
    ['as late as a number can say', Number.MAX_SAFE_INTEGER],
  ])('with an expiry %s', (_, expiration) => {
    const mint = (user: TestUser) => {
      const capabilities = [{ can: 'store/*', with: user.did }];
      const fields = { signer: user.signer, audience: host.did, capabilities, expiration };
      return mintDelegation(fields).ok?.token ?? '';
    };

    it('POST /delegation answers 400 and stores nothing', async () => {
      const alice = new TestUser(host);
      const refused = await store(alice, mint(alice));
      expect([refused.status, refused.body.code]).toEqual([400, 'invalid_delegation']);
      expect(refused.body.message).toMatch(/seconds/);
      expect(await status(alice)).toEqual({ authorized: false });
      expect(await alice.request('DELETE', '/delegation')).toMatchObject({ status: 200 });
    });

    it('it does not log in', async () => {
      expect(await loginWith(mint(new TestUser(host)))).toBe(401);
    });

    it('POST /delegation rejects it as a field of the body', async () => {
      const alice = new TestUser(host);
      const refused = await store(alice, alice.delegate(), { expiration });
      expect([refused.status, refused.body.code]).toEqual([400, 'validation_failed']);
    });
  });

  describe('with DELEGATION_LOGIN_MAX_DAYS=1', () => {
    let strict: TestHost;
    beforeAll(async () => {
      const env = { DATA_DIR: `${host.dataDir}/strict`, DELEGATION_LOGIN_MAX_DAYS: '1' };
      strict = await startHost({ env: { ...database.env, ...env } });
    });
    afterAll(() => strict.close());

    const login = (raw: string) =>
      fetch(`${strict.url}/sessions`, { headers: { 'x-ucan-delegation': raw } });

    it.each([
      ['in two days', 2 * 86_400],
      ['never', null],
    ])('a delegation that expires %s does not log in', async (_, ttlSeconds) => {
      const alice = new TestUser(strict);
      const raw = alice.delegate({ ttlSeconds });
      const refused = await login(raw);
      expect([refused.status, (await refused.json()).code]).toEqual([
        401,
        'missing_authentication',
      ]);
      expect(strict.log).toContainEqual(
        expect.objectContaining({ reason: 'expiry_too_far', did: alice.did }),
      );
      const socket = { query: { sessionId: 'any' }, auth: { ucanDelegation: raw } };
      expect((await openRejectedSocket(strict.url, socket)).data).toMatchObject({
        statusCode: 401,
      });
    });

    it('it can be stored and used with an invocation', async () => {
      const alice = new TestUser(strict);
      const raw = alice.delegate({ ttlSeconds: null });
      expect((await store(alice, raw)).status).toBe(200);
      expect(await status(alice)).toEqual({ authorized: true });
      const headers = { 'x-ucan-delegation': raw };
      expect((await alice.request('GET', '/sessions', { headers })).status).toBe(200);
    });

    it('a delegation that expires within the day logs in', async () => {
      const raw = new TestUser(strict).delegate({ ttlSeconds: 86_000 });
      expect((await login(raw)).status).toBe(200);
    });
  });
});
