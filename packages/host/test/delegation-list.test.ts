import { defineTool } from '@sibyl/plugin-kit';
import { readToken } from '@sibyl/ucan';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';
import { joinSession } from './support/session-socket.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

let database: TestDatabase;
let host: TestHost;

const store = (user: TestUser, raw: string, more: object = {}) =>
  user.request('POST', '/delegation', { body: { raw, ...more } });
const status = async (user: TestUser) => (await user.request('GET', '/delegation')).body;
const list = async (user: TestUser) => (await user.request('GET', '/delegations')).body.delegations;
const readCid = (token: string) => readToken(token).ok?.root.cid ?? '';
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

  describe('GET /delegations', () => {
    it('lists the stored one and those it replaced, newest first', async () => {
      const alice = new TestUser(host);
      const [first, second] = [alice.delegate({ ttlSeconds: 100 }), alice.delegate()];
      await store(alice, first);
      const { body } = await store(alice, second);
      expect(await list(alice)).toEqual([
        {
          cid: readCid(second),
          audience: host.did,
          capabilities: [{ can: 'store/*', with: alice.did }],
          expiration: body.expiration,
          createdAt: expect.stringMatching(/^20.*Z$/),
          purpose: 'services',
          isCurrent: true,
        },
        expect.objectContaining({ cid: readCid(first), isCurrent: false }),
      ]);
    });

    it('lists one that was only presented, as a login, with its last use', async () => {
      const alice = new TestUser(host);
      const raw = alice.delegate();
      expect(await loginWith(raw)).toBe(200);
      expect(await loginWith(raw)).toBe(200);
      expect(await list(alice)).toMatchObject([
        { cid: readCid(raw), isCurrent: false, lastUsedAt: expect.stringMatching(/^20.*Z$/) },
      ]);
      expect(await status(alice)).toEqual({ authorized: false });
    });

    it('lists one that was only presented by a socket', async () => {
      const alice = new TestUser(host);
      const raw = alice.delegate();
      const { body } = await alice.request('POST', '/sessions');
      await joinSession(alice, body.sessionId, { auth: { ucanDelegation: raw } });
      expect(await list(alice)).toMatchObject([{ cid: readCid(raw), isCurrent: false }]);
    });

    it('lists one that was only presented with an invocation, once a turn has used it', async () => {
      const alice = new TestUser(host);
      const raw = alice.delegate();
      const { body: session } = await alice.request('POST', '/sessions');
      await alice.request('POST', `/messages/${session.sessionId}`, {
        body: { message: 'hello' },
        headers: { 'x-ucan-delegation': raw },
      });
      expect(await list(alice)).toMatchObject([{ cid: readCid(raw), isCurrent: false }]);
    });

    it('lists one that was removed because of the limit again, once it is used again', async () => {
      const alice = new TestUser(host);
      const raws = Array.from({ length: 101 }, () => alice.delegate({ ttlSeconds: null }));
      for (const raw of raws) expect(await loginWith(raw)).toBe(200);
      const cids = async (): Promise<string[]> =>
        (await list(alice)).map(({ cid }: { cid: string }) => cid);
      const [first = '', second = ''] = raws;
      expect(await cids()).toHaveLength(100);
      expect(await cids()).not.toContain(readCid(first));
      expect(await loginWith(first)).toBe(200);
      expect(await cids()).toContain(readCid(first));
      // A stored one makes room too.
      expect(await cids()).not.toContain(readCid(second));
      const third = raws[2] ?? '';
      await store(alice, alice.delegate());
      expect(await cids()).not.toContain(readCid(third));
      expect(await loginWith(third)).toBe(200);
      expect(await cids()).toContain(readCid(third));
    });

    it('does not list a delegation of another user who presents it', async () => {
      const [alice, eve] = [new TestUser(host), new TestUser(host)];
      const { body: session } = await eve.request('POST', '/sessions');
      await eve.request('POST', `/messages/${session.sessionId}`, {
        body: { message: 'hello' },
        headers: { 'x-ucan-delegation': alice.delegate() },
      });
      expect(await list(eve)).toEqual([]);
      expect(await list(alice)).toEqual([]);
    });
  });

  describe('lastUsedBy of GET /delegations', () => {
    let model: ControlledModel;
    let own: TestDatabase;
    let signing: TestHost;
    const sign = (name: string) =>
      testPlugin(name, {
        getTools: () => [
          defineTool({
            name: `sign_${name}`,
            description: 'Signs',
            inputSchema: z.object({}),
            run: async (_input, { ucan, user }) => {
              const audience = 'did:web:files.example';
              await ucan.mintInvocation({ audience, can: 'store/add', with: user.did });
              return 'signed';
            },
          }),
        ],
      });
    const open = () =>
      startHost({
        bundled: [],
        plugins: [sign('notes'), sign('letters')],
        env: { ...own.env, ...model.env, ORACLE_MNEMONIC: 'an oracle that signs' },
      });
    beforeAll(async () => {
      model = await startControlledModel();
      own = await createTestDatabase(engine);
      signing = await open();
    });
    afterAll(async () => {
      await signing.close();
      await own.drop();
      model.close();
    });

    const use = async (user: TestUser, name: string) => {
      const { body: session } = await user.request('POST', '/sessions');
      const reply = user.request('POST', `/messages/${session.sessionId}`, {
        body: { message: 'sign' },
      });
      (await model.next()).call({ name: `sign_${name}`, input: {} });
      const next = await model.next();
      expect(next.results.join()).toContain('signed');
      next.answer('done');
      await reply;
    };

    it('is the plugin that last signed with it, and survives a restart', async () => {
      const [alice, bob] = [new TestUser(signing), new TestUser(signing)];
      for (const user of [alice, bob]) await store(user, user.delegate());
      await use(alice, 'notes');
      expect(await list(alice)).toMatchObject([{ lastUsedBy: 'notes', isCurrent: true }]);
      await use(alice, 'letters');
      const before = Date.now();
      await signing.close();
      signing = await open();
      const again = alice.at(signing);
      expect(await list(again)).toMatchObject([{ lastUsedBy: 'letters' }]);
      const [{ lastUsedAt }] = await list(again);
      expect(Math.abs(Date.parse(lastUsedAt) - before)).toBeLessThan(3_600_000);
      expect((await list(bob.at(signing)))[0]).not.toHaveProperty('lastUsedBy');
    });
  });

  describe('DELETE /delegation', () => {
    it('revokes the replaced ones too', async () => {
      const alice = new TestUser(host);
      const tokens = [alice.delegate(), alice.delegate(), alice.delegate()];
      for (const raw of tokens) await store(alice, raw);
      for (const raw of tokens) expect(await loginWith(raw)).toBe(200);
      await alice.request('DELETE', '/delegation');
      for (const raw of tokens) expect(await loginWith(raw)).toBe(401);
      expect(await list(alice)).toEqual([]);
    });

    it('does not revoke one that was presented at another time', async () => {
      const alice = new TestUser(host);
      const raw = alice.delegate();
      await loginWith(raw);
      await alice.request('DELETE', '/delegation');
      expect(await loginWith(raw)).toBe(200);
    });
  });

  describe('DELETE /delegations/:cid', () => {
    it('revokes only that one', async () => {
      const alice = new TestUser(host);
      const [kept, gone] = [alice.delegate(), alice.delegate()];
      await store(alice, gone);
      await store(alice, kept);
      const revoked = await alice.request('DELETE', `/delegations/${readCid(gone)}`);
      expect([revoked.status, revoked.body]).toEqual([200, { ok: true }]);
      expect([await loginWith(gone), await loginWith(kept)]).toEqual([401, 200]);
      expect(await status(alice)).toMatchObject({ authorized: true });
      expect(await list(alice)).toMatchObject([{ cid: readCid(kept), isCurrent: true }]);
    });

    it('makes no other delegation current', async () => {
      const alice = new TestUser(host);
      const [older, current] = [alice.delegate(), alice.delegate()];
      await store(alice, older);
      await store(alice, current);
      await alice.request('DELETE', `/delegations/${readCid(current)}`);
      expect(await status(alice)).toEqual({ authorized: false });
      expect(await list(alice)).toMatchObject([{ cid: readCid(older), isCurrent: false }]);
    });

    it('revokes one that was only presented', async () => {
      const alice = new TestUser(host);
      const raw = alice.delegate();
      await loginWith(raw);
      expect(await alice.request('DELETE', `/delegations/${readCid(raw)}`)).toMatchObject({
        status: 200,
      });
      expect(await loginWith(raw)).toBe(401);
    });

    it('answers the same for an unknown CID, one of another user and an invalid one', async () => {
      const [alice, eve] = [new TestUser(host), new TestUser(host)];
      const raw = alice.delegate();
      await store(alice, raw);
      const unknown = readCid(alice.delegate());
      for (const cid of [readCid(raw), unknown, 'x', encodeURIComponent("'; --")]) {
        const { status: code, body } = await eve.request('DELETE', `/delegations/${cid}`);
        expect([code, body.code, body.message]).toEqual([
          404,
          'delegation_not_found',
          'No such delegation',
        ]);
      }
      expect(await loginWith(raw)).toBe(200);
    });
  });

  describe('DELETE /delegations', () => {
    it('revokes all of the caller and returns how many', async () => {
      const [alice, bob] = [new TestUser(host), new TestUser(host)];
      const [replaced, current, presented, attached] = [1, 2, 3, 4].map(() => alice.delegate());
      const foreign = bob.delegate();
      await store(alice, replaced ?? '');
      await store(alice, current ?? '');
      await loginWith(presented ?? '');
      await store(bob, foreign);
      expect((await alice.request('DELETE', '/delegations/')).status).toBe(404);
      const revoked = await alice.request('DELETE', '/delegations', {
        headers: { 'x-ucan-delegation': attached ?? '' },
      });
      expect([revoked.status, revoked.body]).toEqual([200, { ok: true, revoked: 4 }]);
      for (const raw of [replaced, current, presented, attached])
        expect(await loginWith(raw ?? '')).toBe(401);
      expect(await list(alice)).toEqual([]);
      expect(await loginWith(foreign)).toBe(200);
      expect((await alice.request('DELETE', '/delegations')).body).toEqual({
        ok: true,
        revoked: 0,
      });
    });

    it('counts a stored delegation that is also in the request once', async () => {
      const alice = new TestUser(host);
      const raw = alice.delegate();
      await store(alice, raw);
      const headers = { 'x-ucan-delegation': raw };
      const { body } = await alice.request('DELETE', '/delegations', { headers });
      expect(body).toEqual({ ok: true, revoked: 1 });
    });
  });

  describe('an open socket that logged in with a delegation', () => {
    const openWith = async (user: TestUser, ucanDelegation: string) => {
      const { body } = await user.request('POST', '/sessions');
      return joinSession(user, body.sessionId, { auth: { ucanDelegation }, reconnection: false });
    };

    it.each(['/delegation', '/delegations', '/delegations/:cid'])(
      'is disconnected by DELETE %s at once',
      async (path) => {
        const alice = new TestUser(host);
        const raw = alice.delegate();
        await store(alice, raw);
        const socket = await openWith(alice, raw);
        const { body } = await alice.request('POST', '/sessions');
        const unconcerned = await joinSession(alice, body.sessionId);
        await alice.request('DELETE', path.replace(':cid', readCid(raw)));
        expect(await socket.until('closing')).toMatchObject({ reason: 'token_revoked' });
        expect(await socket.until('(disconnect)')).toBe('io server disconnect');
        expect(await unconcerned.ask('ping', 'pong')).toBeDefined();
      },
    );
  });
});
