import { mintAuthInvocation } from '@sibyl/ucan';
import { Delegation, delegate } from '@ucanto/core';
import { ed25519 } from '@ucanto/principal';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startHost, type TestHost } from './support/host.js';
import { TestUser } from './support/user.js';

const MISSING =
  'Missing UCAN authentication: provide Authorization: Bearer <invocation> with X-Auth-Type: ucan, or an x-ucan-delegation header';
const INVALID = 'Invalid UCAN invocation';

let host: TestHost;
let alice: TestUser;
beforeAll(async () => {
  host = await startHost();
  alice = new TestUser(host);
});
afterAll(() => host.close());

const list = async (headers: Record<string, string>, at = host) => {
  const response = await fetch(`${at.url}/sessions`, { headers });
  const body = (await response.json()) as { message?: string; total?: number };
  return { status: response.status, body };
};

const bearer = (token: string) => ({ authorization: `Bearer ${token}`, 'x-auth-type': 'ucan' });

describe('UcanGuard rejects with the documented text', () => {
  it.each<[string, () => Record<string, string>, string]>([
    ['nothing', () => ({}), MISSING],
    ['x-did alone', () => ({ 'x-did': alice.did }), MISSING],
    ['a bearer without X-Auth-Type', () => ({ authorization: `Bearer ${alice.mint()}` }), MISSING],
    ['X-Auth-Type without a bearer', () => ({ 'x-auth-type': 'ucan' }), MISSING],
    ['a bad delegation alone', () => ({ 'x-ucan-delegation': 'AAAA' }), MISSING],
    ['garbage', () => bearer('garbage'), INVALID],
    ['another scheme', () => ({ authorization: 'Basic eDp5', 'x-auth-type': 'ucan' }), MISSING],
    ['an empty bearer', () => ({ authorization: 'Bearer ', 'x-auth-type': 'ucan' }), MISSING],
    ['an expired invocation', () => bearer(alice.mint(-1)), INVALID],
    ['one that lives too long', () => bearer(alice.mint(2000)), INVALID],
    ['a delegation as bearer', () => bearer(alice.delegate()), INVALID],
    [
      'a bad invocation beside a good delegation',
      () => ({ ...bearer('garbage'), 'x-ucan-delegation': alice.delegate() }),
      INVALID,
    ],
    [
      'an expired invocation beside a good delegation',
      () => ({ ...bearer(alice.mint(-1)), 'x-ucan-delegation': alice.delegate() }),
      INVALID,
    ],
  ])('%s', async (_, headers, message) => {
    const { status, body } = await list(headers());
    expect(status).toBe(401);
    expect(body).toEqual({
      statusCode: 401,
      message,
      error: 'Unauthorized',
      code: message === INVALID ? 'invalid_invocation' : 'missing_authentication',
      requestId: expect.any(String),
    });
  });
});

describe('Authorization of another scheme with X-Auth-Type: ucan', () => {
  const beside = (authorization: string) => ({
    authorization,
    'x-auth-type': 'ucan',
    'x-ucan-delegation': alice.delegate(),
  });

  it.each(['Basic eDp5', 'Digest username="x"', 'Token abc'])(
    '%s: the delegation counts',
    async (scheme) => {
      expect((await list(beside(scheme))).status).toBe(200);
    },
  );

  it('an invalid delegation with it is rejected', async () => {
    const headers = { ...beside('Basic eDp5'), 'x-ucan-delegation': 'AAAA' };
    expect(await list(headers)).toMatchObject({ status: 401, body: { message: MISSING } });
  });

  it.each([
    'Bearer',
    'Bearer ',
    'bearer AAAA',
    'Bearer\tAAAA',
    'Basic eDp5, Bearer AAAA',
    'Bearer,x',
  ])('%j is an invalid invocation, also with a valid delegation', async (authorization) => {
    expect(await list(beside(authorization))).toMatchObject({
      status: 401,
      body: { message: INVALID },
    });
  });
});

it('UcanGuard accepts an invocation repeatedly until it expires', async () => {
  for (let i = 0; i < 3; i++) expect((await list(alice.headers)).status).toBe(200);
});

it('UcanGuard accepts a token of ucanto', async () => {
  const issuer = await ed25519.generate();
  const made = await delegate({
    issuer,
    audience: { did: () => host.did as `did:key:${string}` },
    capabilities: [{ can: '*', with: 'ixo:oracle' }],
    expiration: Math.floor(Date.now() / 1000) + 300,
  });
  const { ok } = await Delegation.archive(made);
  const token = Buffer.from(ok as Uint8Array).toString('base64');
  expect((await list(bearer(token))).status).toBe(200);
});

it('UcanGuard ignores x-did', async () => {
  const { body: session } = await alice.request('POST', '/sessions');
  const eve = new TestUser(host);
  const { body } = await eve.request('GET', '/sessions', { headers: { 'x-did': alice.did } });
  expect(body).toEqual({ sessions: [], total: 0 });
  const found = await alice.request('GET', '/sessions', { headers: { 'x-did': eve.did } });
  expect(found.body.sessions[0].sessionId).toBe(session.sessionId);
});

describe('a delegation alone', () => {
  it('logs its issuer in', async () => {
    const { status, body } = await list({ 'x-ucan-delegation': alice.delegate() });
    expect(status).toBe(200);
    expect(body.total).toBeGreaterThan(0);
  });

  it('does not log in with UCAN_ALLOW_DELEGATION_LOGIN=false', async () => {
    const strict = await startHost({ env: { UCAN_ALLOW_DELEGATION_LOGIN: 'false' } });
    const bob = new TestUser(strict);
    const refused = await list({ 'x-ucan-delegation': bob.delegate() }, strict);
    await strict.close();
    expect(refused).toMatchObject({ status: 401, body: { message: MISSING } });
  });
});

it('UcanGuard accepts an invocation with an invalid delegation', async () => {
  for (const delegation of ['AAAA', new TestUser(host).delegate()])
    expect((await list({ ...alice.headers, 'x-ucan-delegation': delegation })).status).toBe(200);
});

it('UcanGuard logs why a did:ixo caller is rejected, but does not send it', async () => {
  const ixo = alice.signer.withDid('did:ixo:entity:abc').ok;
  const minted = mintAuthInvocation({ signer: ixo ?? alice.signer, audience: host.did });
  const { body } = await list(bearer(minted.ok?.token ?? ''));
  expect(body.message).toBe(INVALID);
  expect(host.log.at(-2)).toMatchObject({
    msg: 'caller rejected',
    did: 'did:ixo:entity:abc',
    detail: expect.stringContaining('CHAIN_REST_URL'),
  });
});

it('accessLog logs one line per request, and never a token', async () => {
  const token = alice.mint();
  const delegation = alice.delegate();
  await fetch(`${host.url}/sessions`, {
    headers: { ...bearer(token), 'x-ucan-delegation': delegation, 'x-request-id': 'trace-1' },
  });
  const lines = host.log.filter(({ requestId }) => requestId === 'trace-1');
  expect(lines).toEqual([
    expect.objectContaining({
      did: alice.did,
      method: 'GET',
      route: '/sessions',
      status: 200,
      ms: expect.any(Number),
    }),
  ]);
  const text = JSON.stringify(host.log);
  for (const secret of [token, delegation, 'garbage']) expect(text).not.toContain(secret);
});
