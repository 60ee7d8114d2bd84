import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { createInvitations, loadConfig } from '@sibyl/host';
import { generateSigner } from '@sibyl/ucan';
import { afterEach, describe, expect, it } from 'vitest';
import { useHostPair } from './support/host-pair.js';
import { joinSession } from './support/session-socket.js';
import { TestUser } from './support/user.js';

const PER_MINUTE = 20;
/** Users who call often. */
const listed = Array.from({ length: 3 }, () => generateSigner());
const hosts = useHostPair(() => ({
  env: {
    RATE_LIMIT_PER_MINUTE: String(PER_MINUTE),
    RATE_LIMIT_ANONYMOUS_PER_MINUTE: String(PER_MINUTE),
    CALLERS_ALLOW: listed.map(({ did }) => did).join(','),
    // Each test has its own address.
    TRUST_PROXY: '1',
  },
}));
afterEach(() => hosts.busProxy.unmute());

/** Longer than any poll of the store takes, shorter than the interval in which sockets check their credentials. */
const SOON = 30_000;

let lastAddress = 0;
const newAddress = () => ({ 'x-forwarded-for': `198.51.100.${++lastAddress}` });

async function admit(): Promise<{ alice: TestUser; invitation: string }> {
  const config = loadConfig(hosts.database.env);
  const [printed] = await createInvitations({ days: 1, count: 1 }, config);
  const alice = new TestUser(hosts.a);
  const invitation = printed?.invitation ?? '';
  expect(await redeem(alice, invitation)).toBe(200);
  return { alice, invitation };
}

const redeem = async (user: TestUser, invitation: string) =>
  (await user.request('POST', '/invitations', { body: { invitation }, headers: newAddress() }))
    .status;

const openSession = async (user: TestUser): Promise<string> =>
  (await user.request('POST', '/sessions', { headers: newAddress() })).body.sessionId;

/** How many requests are allowed until one is refused. */
async function countAllowed(request: () => Promise<number>, pauseMs = 0): Promise<number> {
  for (let allowed = 0; ; allowed++) {
    if ((await request()) === 429) return allowed;
    await sleep(pauseMs);
  }
}

describe('limits of all hosts together', () => {
  it('RATE_LIMIT_PER_MINUTE counts the requests of a caller on every host', async () => {
    const alice = new TestUser(hosts.a, listed[0]);
    const headers = newAddress();
    const ask = (user: TestUser) => async () =>
      (await user.request('GET', '/sessions', { headers })).status;
    expect(await countAllowed(ask(alice))).toBeGreaterThanOrEqual(PER_MINUTE);
    // Some may pass until the message arrives.
    expect(await countAllowed(ask(alice.at(hosts.b)), 50)).toBeLessThan(PER_MINUTE / 2);
    const bob = new TestUser(hosts.b, listed[1]);
    expect(await ask(bob)()).toBe(200);
  });

  it('RATE_LIMIT_ANONYMOUS_PER_MINUTE counts the requests of an address on every host', async () => {
    const headers = newAddress();
    const ask = (url: string) => async () => (await fetch(`${url}/sessions`, { headers })).status;
    expect(await countAllowed(ask(hosts.b.url))).toBeGreaterThanOrEqual(PER_MINUTE);
    expect(await countAllowed(ask(hosts.a.url), 50)).toBeLessThan(PER_MINUTE / 2);
    const other = await fetch(`${hosts.a.url}/sessions`, { headers: newAddress() });
    expect(other.status).toBe(401);
  });
});

describe('a revocation on another host', () => {
  async function openLoginSocket() {
    const alice = new TestUser(hosts.a, listed[2]);
    const sessionId = await openSession(alice);
    const ucanDelegation = alice.delegate();
    const auth = { ucanDelegation };
    const extraHeaders = newAddress();
    const options = { auth, extraHeaders, reconnection: false };
    const socket = await joinSession(alice.at(hosts.b), sessionId, options);
    const revoke = async () => {
      const headers = { 'x-ucan-delegation': ucanDelegation, ...newAddress() };
      expect((await fetch(`${hosts.a.url}/delegation`, { method: 'DELETE', headers })).status).toBe(
        200,
      );
    };
    return { socket, revoke, ucanDelegation };
  }

  it('closes sockets, and applies to requests', async () => {
    const { socket, revoke, ucanDelegation } = await openLoginSocket();
    await revoke();
    expect(await socket.until('closing')).toMatchObject({ reason: 'token_revoked' });
    const headers = { 'x-ucan-delegation': ucanDelegation, ...newAddress() };
    expect((await fetch(`${hosts.b.url}/sessions`, { headers })).status).toBe(401);
  });

  it('closes sockets even if no notification arrives', { timeout: SOON }, async () => {
    const { socket, revoke } = await openLoginSocket();
    hosts.busProxy.mute();
    await revoke();
    expect(await socket.until('closing')).toMatchObject({ reason: 'token_revoked' });
  });
});

describe('callers.remove on another host', () => {
  it.each([
    ['and the socket is closed', () => {}],
    ['even if no notification arrives', () => hosts.busProxy.mute()],
  ])('ends the access of a caller, %s', { timeout: SOON }, async (_, prepare) => {
    const { alice } = await admit();
    const extraHeaders = newAddress();
    const options = { extraHeaders, reconnection: false };
    const atB = alice.at(hosts.b);
    const socket = await joinSession(atB, await openSession(alice), options);
    prepare();
    expect(await hosts.a.app.callers.remove(alice.did)).toBe(true);
    expect(await socket.until('closing')).toMatchObject({ reason: 'caller_not_allowed' });
    const ask = async () =>
      (await atB.request('GET', '/sessions', { headers: newAddress() })).status;
    await expect.poll(ask).toBe(403);
  });
});

it('POST /invitations takes an invitation once, on any host', async () => {
  const { invitation } = await admit();
  expect(await redeem(new TestUser(hosts.b), invitation)).toBe(409);
});

it('Idempotency-Key applies on every host', async () => {
  const alice = new TestUser(hosts.a, listed[1]);
  const sessionId = await openSession(alice);
  const headers = () => ({ 'idempotency-key': key, ...newAddress() });
  const key = randomUUID();
  const body = { message: 'Hello' };
  const send = (user: TestUser, sent: object) =>
    user.request('POST', `/messages/${sessionId}`, { body: sent, headers: headers() });
  const [first, second] = await Promise.all([send(alice, body), send(alice.at(hosts.b), body)]);
  expect([first.status, second.status]).toEqual([200, 200]);
  expect(second.body.message.id).toBe(first.body.message.id);
  expect(await send(alice.at(hosts.b), { message: 'Other' })).toMatchObject({ status: 409 });
  const stored = await alice.request('GET', `/messages/${sessionId}`, { headers: newAddress() });
  expect(stored.body.messages).toHaveLength(2);
});
