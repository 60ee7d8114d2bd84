import { createInvitations, loadConfig } from '@sibyl/host';
import { mintDelegation, type Signer, signerFromMnemonic } from '@sibyl/ucan';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { CallerStore } from '../src/store/caller-store.js';
import { openStore } from '../src/store/store.js';
import { StoreError } from '../src/store/store-errors.js';
import { startHost, type TestHost } from './support/host.js';
import { joinSession, openRejectedSocket } from './support/session-socket.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

const ORACLE_MNEMONIC = 'the key of an oracle that is open to invited users';
const oracle = signerFromMnemonic(ORACLE_MNEMONIC).ok as Signer;
const listed = new TestUser({ url: '', did: oracle.did });
const CALLERS_ALLOW = `did:web:user.example, ${listed.did}`;

describe.each(engines)('CALLERS_ALLOW on %s', (engine) => {
  let database: TestDatabase;
  let host: TestHost;
  beforeAll(async () => {
    database = await createTestDatabase(engine);
    host = await startHost({ env: { ...database.env, ORACLE_MNEMONIC, CALLERS_ALLOW } });
  });
  afterAll(async () => {
    await host.close();
    await database.drop();
  });

  /** Invitations as `sibyl invite` makes them. */
  const invite = async (): Promise<string> => {
    const config = loadConfig({ DATA_DIR: host.dataDir, ORACLE_MNEMONIC });
    const [printed] = await createInvitations({ days: 1, count: 1 }, config);
    return printed?.invitation ?? '';
  };
  const redeem = async (user: TestUser, invitation: string) => {
    const { status, body } = await user.request('POST', '/invitations', { body: { invitation } });
    return status === 200 ? [status, body] : [status, body.code];
  };
  const admitted = async (): Promise<TestUser> => {
    const user = new TestUser(host);
    expect(await redeem(user, await invite())).toEqual([200, { ok: true }]);
    return user;
  };
  const fetchStatus = async (user: TestUser) => (await user.request('GET', '/sessions')).status;
  const openSession = async (user: TestUser): Promise<string> =>
    (await user.request('POST', '/sessions')).body.sessionId;

  it.each([
    ['GET', '/sessions'],
    ['POST', '/sessions'],
    ['DELETE', '/sessions/any'],
    ['GET', '/messages/any'],
    ['POST', '/messages/any'],
    ['POST', '/messages/abort'],
    ['GET', '/sessions/any/messages'],
    ['GET', '/sessions/any/run'],
    ['GET', '/runs/any'],
    ['GET', '/delegation'],
    ['POST', '/delegation'],
    ['GET', '/user-preferences'],
  ])('answers 403 to an unlisted caller on %s %s', async (method, path) => {
    const { status, body } = await new TestUser(host).request(method, path);
    expect([status, body.code]).toEqual([403, 'caller_not_allowed']);
    expect(body.message).toBe(
      'This oracle is open to invited users only. Ask its operator for an invitation.',
    );
  });

  it('rejects an unlisted caller who logs in with a delegation', async () => {
    const headers = { 'x-ucan-delegation': new TestUser(host).delegate() };
    expect((await fetch(`${host.url}/sessions`, { headers })).status).toBe(403);
  });

  it('stores nothing for an unlisted caller who logs in with a delegation', async () => {
    const alice = new TestUser(host);
    const headers = { 'x-ucan-delegation': alice.delegate() };
    for (const path of ['/sessions', '/delegations']) await fetch(host.url + path, { headers });
    expect(await redeem(alice, await invite())).toEqual([200, { ok: true }]);
    expect((await alice.request('GET', '/delegations')).body).toEqual({ delegations: [] });
  });

  it.each(['DELETE /delegation', 'DELETE /delegations', 'DELETE /delegations/:cid'])(
    'a removed caller can still list its delegations and revoke them with %s',
    async (route) => {
      const alice = await admitted();
      const raw = alice.delegate();
      expect(await alice.request('POST', '/delegation', { body: { raw } })).toHaveProperty(
        'status',
        200,
      );
      await host.app.callers.remove(alice.did);
      expect(await fetchStatus(alice)).toBe(403);
      const { status, body } = await alice.request('GET', '/delegations');
      expect([status, body.delegations.length]).toEqual([200, 1]);
      const { cid } = body.delegations[0];
      const [method = '', path = ''] = route.replace(':cid', cid).split(' ');
      expect(await alice.request(method, path)).toHaveProperty('status', 200);
      expect((await alice.request('GET', '/delegations')).body).toEqual({ delegations: [] });
      expect(await redeem(alice, await invite())).toEqual([200, { ok: true }]);
      const headers = { 'x-ucan-delegation': raw };
      expect((await fetch(`${host.url}/sessions`, { headers })).status).toBe(401);
    },
  );

  it('GET /delegations lists the delegation that an admitted caller logs in with', async () => {
    const alice = await admitted();
    const headers = { 'x-ucan-delegation': alice.delegate() };
    const answer = await fetch(`${host.url}/delegations`, { headers });
    expect(await answer.json()).toMatchObject({ delegations: [{ isCurrent: false }] });
  });

  it('disconnects a socket of an unlisted caller', async () => {
    const alice = new TestUser(host);
    const options = { query: { sessionId: 'any' }, auth: { invocation: alice.mint() } };
    const { data } = await openRejectedSocket(host.url, options);
    expect(data).toMatchObject({ statusCode: 403, code: 'caller_not_allowed' });
  });

  it('answers 401, not 403, without a valid token', async () => {
    expect((await fetch(`${host.url}/sessions`)).status).toBe(401);
    expect((await fetch(`${host.url}/invitations`, { method: 'POST' })).status).toBe(401);
  });

  it('admits a listed DID, and leaves public routes open', async () => {
    expect(await fetchStatus(listed.at(host))).toBe(200);
    expect((await fetch(`${host.url}/health`)).status).toBe(200);
    const card = await (await fetch(`${host.url}/.well-known/oracle.json`)).json();
    expect(card.features).toContain('invitations');
  });

  it('POST /invitations admits a caller, on routes and on the socket', async () => {
    const alice = new TestUser(host);
    expect(await fetchStatus(alice)).toBe(403);
    expect(await redeem(alice, await invite())).toEqual([200, { ok: true }]);
    expect(await fetchStatus(alice)).toBe(200);
    const socket = await joinSession(alice, await openSession(alice));
    expect(await socket.ask('ping', 'pong')).toBeDefined();
    const callers = await host.app.callers.list();
    expect(callers).toContainEqual(expect.objectContaining({ did: alice.did }));
  });

  it('POST /invitations takes each invitation once', async () => {
    const [alice, eve] = [new TestUser(host), new TestUser(host)];
    const invitation = await invite();
    expect(await redeem(alice, invitation)).toEqual([200, { ok: true }]);
    expect(await redeem(eve, invitation)).toEqual([409, 'invitation_used']);
    expect(await redeem(alice, invitation)).toEqual([409, 'invitation_used']);
    expect([await fetchStatus(alice), await fetchStatus(eve)]).toEqual([200, 403]);
  });

  it('POST /invitations confirms what the database stored although its reply was lost', async () => {
    const alice = new TestUser(host);
    const { redeem: stored } = CallerStore.prototype;
    vi.spyOn(CallerStore.prototype, 'redeem').mockImplementationOnce(async function (
      this: CallerStore,
      ...redeemed
    ) {
      await stored.apply(this, redeemed);
      throw new StoreError('Connection terminated unexpectedly');
    });
    expect(await redeem(alice, await invite())).toEqual([200, { ok: true }]);
    expect(await fetchStatus(alice)).toBe(200);
  });

  it('POST /invitations admits one of many callers who come at the same time', async () => {
    const users = Array.from({ length: 12 }, () => new TestUser(host));
    const invitation = await invite();
    const answers = await Promise.all(users.map((user) => redeem(user, invitation)));
    const codes = answers.map(([status]) => status).sort();
    expect(codes).toEqual([200, ...Array.from({ length: 11 }, () => 409)]);
    const statuses = await Promise.all(users.map(fetchStatus));
    expect(statuses.filter((status) => status === 200)).toHaveLength(1);
  });

  it('POST /invitations leaves the invitation of an admitted caller unused', async () => {
    const alice = await admitted();
    const invitation = await invite();
    expect(await redeem(alice, invitation)).toEqual([200, { ok: true }]);
    expect(await redeem(new TestUser(host), invitation)).toEqual([200, { ok: true }]);
  });

  const mint = (signer: Signer, change: object = {}) =>
    mintDelegation({
      signer,
      audience: oracle.did,
      capabilities: [{ can: 'oracle/invite', with: oracle.did }],
      expiration: Math.floor(Date.now() / 1000) + 3600,
      ...change,
    }).ok?.token ?? '';
  const other = [{ can: 'oracle/other', with: oracle.did }];

  it.each<[string, (alice: TestUser) => string]>([
    ['that the caller signed', (alice) => mint(alice.signer)],
    ['for another oracle', (alice) => mint(oracle, { audience: alice.did })],
    ['with another capability', () => mint(oracle, { capabilities: other })],
    ['without an expiry', () => mint(oracle, { expiration: null })],
    ['with a changed signature', () => flipLastByte(mint(oracle))],
    ['that is an auth invocation', (alice) => alice.mint()],
    ['that is garbage', () => 'garbage'],
  ])('POST /invitations answers 400 to an invitation %s', async (_, make) => {
    const alice = new TestUser(host);
    expect(await redeem(alice, make(alice))).toEqual([400, 'invalid_invitation']);
    expect(await fetchStatus(alice)).toBe(403);
  });

  it('POST /invitations answers 410 to an expired invitation', async () => {
    const expired = mint(oracle, { expiration: Math.floor(Date.now() / 1000) - 1 });
    expect(await redeem(new TestUser(host), expired)).toEqual([410, 'invitation_expired']);
  });

  it('an invitation does not log in', async () => {
    const headers = { 'x-ucan-delegation': await invite() };
    for (const path of ['/sessions', '/delegations'])
      expect((await fetch(host.url + path, { headers })).status).toBe(401);
    const bearer = { authorization: `Bearer ${await invite()}`, 'x-auth-type': 'ucan' };
    expect((await fetch(`${host.url}/sessions`, { headers: bearer })).status).toBe(401);
    const options = { query: { sessionId: 'any' }, auth: { ucanDelegation: await invite() } };
    expect((await openRejectedSocket(host.url, options)).data).toMatchObject({ statusCode: 401 });
  });

  it('callers.remove takes effect at once, on routes and on open sockets', async () => {
    const alice = await admitted();
    const socket = await joinSession(alice, await openSession(alice), { reconnection: false });
    expect(await host.app.callers.remove(alice.did)).toBe(true);
    expect(await fetchStatus(alice)).toBe(403);
    expect(await socket.until('closing')).toMatchObject({ reason: 'caller_not_allowed' });
    expect(await socket.until('(disconnect)')).toBe('io server disconnect');
    expect(await host.app.callers.remove(alice.did)).toBe(false);
  });

  it('a removal by another process takes effect on routes and on open sockets', async () => {
    const alice = await admitted();
    const socket = await joinSession(alice, await openSession(alice), { reconnection: false });
    const store = await openStore({ ...database.options, secretKey: oracle.exportSeed() });
    await store.callers.remove(alice.did);
    await store.close();
    expect(await socket.until('closing')).toMatchObject({ reason: 'caller_not_allowed' });
    await expect.poll(() => fetchStatus(alice), { timeout: 30_000 }).toBe(403);
  }, 120_000);

  it('survives a restart, and admits everyone once CALLERS_ALLOW is unset', async () => {
    const alice = await admitted();
    await host.close();
    host = await startHost({ env: { ...database.env, ORACLE_MNEMONIC } });
    expect(await fetchStatus(new TestUser(host))).toBe(200);
    const card = await (await fetch(`${host.url}/.well-known/oracle.json`)).json();
    expect(card.features).not.toContain('invitations');
    await host.close();
    host = await startHost({ env: { ...database.env, ORACLE_MNEMONIC, CALLERS_ALLOW } });
    expect(await fetchStatus(alice.at(host))).toBe(200);
    expect(await fetchStatus(new TestUser(host))).toBe(403);
  });
});

function flipLastByte(token: string): string {
  const bytes = Buffer.from(token, 'base64');
  const at = bytes.length - 1;
  bytes.writeUInt8(bytes.readUInt8(at) ^ 1, at);
  return bytes.toString('base64');
}

it('POST /invitations counts against the rate limit of the caller', async () => {
  const host = await startHost({
    env: { ORACLE_MNEMONIC, CALLERS_ALLOW, RATE_LIMIT_PER_MINUTE: '5' },
  });
  const alice = new TestUser(host);
  const statuses: number[] = [];
  for (let i = 0; i < 6; i += 1) {
    const body = { invitation: 'garbage' };
    statuses.push((await alice.request('POST', '/invitations', { body })).status);
  }
  await host.close();
  expect(statuses).toEqual([400, 400, 400, 400, 400, 429]);
});
