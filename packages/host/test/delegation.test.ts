import { setTimeout as sleep } from 'node:timers/promises';
import { mintDelegation } from '@sibyl/ucan';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startHost, type TestHost } from './support/host.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

let database: TestDatabase;
let host: TestHost;

const store = (user: TestUser, raw: string, more: object = {}) =>
  user.request('POST', '/delegation', { body: { raw, ...more } });
const status = async (user: TestUser) => (await user.request('GET', '/delegation')).body;
const inOneHour = () => Math.floor(Date.now() / 1000) + 3600;

describe.each(engines)('on %s', (engine) => {
  beforeAll(async () => {
    database = await createTestDatabase(engine);
    host = await startHost({ env: database.env });
  });
  afterAll(async () => {
    await host.close();
    await database.drop();
  });

  it('POST, GET and DELETE /delegation store, show and revoke it', async () => {
    const alice = new TestUser(host);
    expect(await status(alice)).toEqual({ authorized: false });
    const stored = await store(alice, alice.delegate());
    expect([stored.status, stored.body]).toEqual([
      200,
      { ok: true, expiration: expect.any(Number) },
    ]);
    expect(await status(alice)).toEqual({ authorized: true, expiration: stored.body.expiration });
    const revoked = await alice.request('DELETE', '/delegation');
    expect([revoked.status, revoked.body]).toEqual([200, { ok: true }]);
    expect(await status(alice)).toEqual({ authorized: false });
  });

  it('POST /delegation replaces the previous one', async () => {
    const alice = new TestUser(host);
    await store(alice, alice.delegate({ ttlSeconds: 100 }));
    const { body } = await store(alice, alice.delegate({ ttlSeconds: 5000 }));
    expect(await status(alice)).toEqual({ authorized: true, expiration: body.expiration });
  });

  it('GET /delegation shows it only to its user', async () => {
    const [alice, eve] = [new TestUser(host), new TestUser(host)];
    await store(alice, alice.delegate());
    expect(await status(eve)).toEqual({ authorized: false });
    await eve.request('DELETE', '/delegation');
    expect(await status(alice)).toMatchObject({ authorized: true });
  });

  describe('POST /delegation rejects it', () => {
    it('with 403 when another user issued it', async () => {
      const [alice, eve] = [new TestUser(host), new TestUser(host)];
      const { status: code, body } = await store(eve, alice.delegate());
      expect([code, body.code]).toEqual([403, 'foreign_delegation']);
      expect(await status(eve)).toEqual({ authorized: false });
    });

    it.each<[string, (alice: TestUser) => string, RegExp]>([
      [
        'for another audience',
        (a) => a.delegate({ audience: a.did }),
        /another audience.*did:key:/,
      ],
      ['once expired', (a) => a.delegate({ ttlSeconds: -1 }), /expired/],
      ['as garbage', () => 'garbage', /not a valid UCAN delegation/],
      ['truncated', (a) => a.delegate().slice(0, -8), /not a valid UCAN delegation/],
    ])('%s, with the reason', async (_, make, reason) => {
      const alice = new TestUser(host);
      const { status: code, body } = await store(alice, make(alice));
      expect([code, body.code]).toEqual([400, 'invalid_delegation']);
      expect(body.message).toMatch(reason);
    });

    it.each([
      ['issuer', { issuer: 'did:key:z6MkpPcjwo4wP49VnvG7isXnqvFJyEqZ5JxSjohHxTT9Zr1c' }],
      ['audience', { audience: 'did:web:elsewhere.example' }],
      ['expiration', { expiration: 42 }],
    ])('when the body’s %s contradicts it', async (field, more) => {
      const alice = new TestUser(host);
      const { status: code, body } = await store(alice, alice.delegate(), more);
      expect(code).toBe(400);
      expect(body.message).toEqual([expect.stringMatching(new RegExp(`^${field}: contradicts`))]);
      expect(await status(alice)).toEqual({ authorized: false });
    });

    it('but not if the body agrees', async () => {
      const alice = new TestUser(host);
      const expiration = inOneHour();
      const { ok } = mintDelegation({
        signer: alice.signer,
        audience: host.did,
        capabilities: [{ can: 'store/*', with: alice.did }],
        expiration,
      });
      const more = { issuer: alice.did, audience: host.did, expiration };
      expect((await store(alice, ok?.token ?? '', more)).body).toEqual({ ok: true, expiration });
    });
  });

  describe('once revoked', () => {
    it('cannot be stored again', async () => {
      const alice = new TestUser(host);
      const raw = alice.delegate();
      await store(alice, raw);
      await alice.request('DELETE', '/delegation');
      const again = await store(alice, raw);
      expect([again.status, again.body.message]).toEqual([400, expect.stringMatching(/revoked/)]);
      expect((await store(alice, alice.delegate())).status).toBe(200);
    });

    it('does not log in, although it did a moment ago', async () => {
      const alice = new TestUser(host);
      const raw = alice.delegate();
      const login = async () =>
        (await fetch(`${host.url}/sessions`, { headers: { 'x-ucan-delegation': raw } })).status;
      await store(alice, raw);
      expect(await login()).toBe(200);
      await alice.request('DELETE', '/delegation');
      expect(await login()).toBe(401);
    });

    it('is also revoked if it was only presented', async () => {
      const alice = new TestUser(host);
      const raw = alice.delegate();
      await alice.request('DELETE', '/delegation', { headers: { 'x-ucan-delegation': raw } });
      const { status: code } = await fetch(`${host.url}/sessions`, {
        headers: { 'x-ucan-delegation': raw },
      });
      expect(code).toBe(401);
    });

    it('is also revoked if it is not valid yet', async () => {
      const alice = new TestUser(host);
      const minted = mintDelegation({
        signer: alice.signer,
        audience: host.did,
        capabilities: [{ can: 'store/*', with: alice.did }],
        notBefore: Math.floor(Date.now() / 1000) + 31,
        expiration: Math.floor(Date.now() / 1000) + 3600,
      });
      const headers = { 'x-ucan-delegation': minted.ok?.token ?? '' };
      await alice.request('DELETE', '/delegation', { headers });
      await sleep(2_500);
      expect((await fetch(`${host.url}/sessions`, { headers })).status).toBe(401);
    });

    it('stays revoked after a restart', async () => {
      const env = { ...database.env, DATA_DIR: `${host.dataDir}/restarted` };
      const before = await startHost({ env });
      const alice = new TestUser(before);
      const raw = alice.delegate();
      await store(alice, raw);
      expect((await alice.request('DELETE', '/delegation')).status).toBe(200);
      await before.close();
      const after = await startHost({ env });
      expect(after.did).toBe(before.did);
      const { status: code } = await fetch(`${after.url}/sessions`, {
        headers: { 'x-ucan-delegation': raw },
      });
      await after.close();
      expect(code).toBe(401);
    });
  });

  it('GET /delegation shows it after a restart', async () => {
    const env = { ...database.env, DATA_DIR: `${host.dataDir}/kept` };
    const before = await startHost({ env });
    const alice = new TestUser(before);
    await store(alice, alice.delegate());
    await before.close();
    const after = await startHost({ env });
    const returned = await fetch(`${after.url}/delegation`, { headers: alice.headers });
    expect(await returned.json()).toMatchObject({ authorized: true });
    await after.close();
  });
});
