import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { useHostPair } from './support/host-pair.js';
import { resultsIn, scroll } from './support/page-tools.js';
import { PollingClient } from './support/polling-client.js';
import { joinSession } from './support/session-socket.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

let model: ControlledModel;
const hosts = useHostPair(async () => {
  model = await startControlledModel();
  return { env: model.env };
});
afterAll(() => model.close());

/** A client of host B whose only login is a delegation, which host A or B revokes. */
async function join() {
  const alice = new TestUser(hosts.b);
  const sessionId = await openSession(alice);
  const token = alice.delegate();
  const client = await PollingClient.join(alice, sessionId, { ucanDelegation: token });
  const revoke = async (host = hosts.b) => {
    const headers = { 'x-ucan-delegation': token };
    const reply = await fetch(`${host.url}/delegation`, { method: 'DELETE', headers });
    expect(reply.status).toBe(200);
  };
  return { alice, sessionId, client, revoke };
}

const PING = '42["ping"]';

/** Nothing but the reason and the end of the connection. */
function expectClosing(packets: readonly string[]): void {
  const [closing = '', ...rest] = packets.filter(
    (packet) => !['1', '6', '3probe'].includes(packet),
  );
  expect(closing).toContain('"reason":"token_revoked"');
  expect(rest).toEqual(['41']);
}

async function readAll(client: PollingClient): Promise<string[]> {
  const packets: string[] = [];
  for (;;) {
    const { status, text } = await client.read();
    if (status !== 200) return packets;
    packets.push(...text.split('\x1e'));
  }
}

describe('a client by polling whose delegation was revoked', () => {
  it('receives nothing but the reason, although it sends events', async () => {
    const { client, revoke, alice, sessionId } = await join();
    await revoke();
    for (let i = 0; i < 3; i++) await client.send(PING);
    const live = await stream(alice, sessionId, { message: 'secret' });
    (await model.next()).answer('secret');
    await live.toEnd();
    await client.send(PING);
    expectClosing(await readAll(client));
    expect(await client.send(PING)).toBe(400);
  });

  it('receives the reason from another host while it waits', async () => {
    const { client, revoke } = await join();
    const reading = readAll(client);
    await revoke(hosts.a);
    expectClosing(await reading);
  });

  it.each([
    ['before it upgrades', (revoke: () => Promise<void>) => revoke(), () => {}],
    ['between probe and upgrade', () => {}, (revoke: () => Promise<void>) => revoke()],
  ])('receives nothing more by WebSocket: %s', async (_, before, between) => {
    const { client, revoke } = await join();
    await before(revoke);
    const upgrade = await client.openUpgrade();
    upgrade.send('2probe');
    await expect.poll(() => upgrade.received).toContain('3probe');
    await between(revoke);
    upgrade.send('5', PING, PING);
    await upgrade.closed;
    expectClosing(upgrade.received);
    expect((await client.read()).status).toBe(400);
  });
});

/** A turn on host A calls a function of the page; a page that opens then receives the call. */
async function callNextPage(alice: TestUser, sessionId: string): Promise<void> {
  const live = await stream(alice, sessionId, { message: 'x', tools: [scroll] });
  (await model.next()).call({ name: 'scroll', input: { by: 3 } });
  await live.untilEvent('browser_tool_call');
  // Time for the closed page to receive it, too.
  await sleep(500);
  const page = await joinSession(alice, sessionId);
  const { toolCallId } = await page.until('browser_tool_call');
  page.socket.emit('tool_result', { toolCallId, result: 'here' });
  const next = await model.next();
  expect(resultsIn(next)).toEqual(['here']);
  next.answer('ok');
  await live.toEnd();
}

describe('a page that does not read why its connection ends keeps no call from other pages', () => {
  it('after its delegation was revoked', async () => {
    const { client, revoke, alice, sessionId } = await join();
    await revoke();
    await callNextPage(alice.at(hosts.a), sessionId);
    expectClosing(await readAll(client));
  });

  it('after its token has expired', async () => {
    const alice = new TestUser(hosts.a);
    const sessionId = await openSession(alice);
    const auth = { invocation: alice.mint(6) };
    const client = await PollingClient.join(alice, sessionId, auth);
    // Until the token has expired.
    await sleep(7_000);
    await callNextPage(alice, sessionId);
    expect((await readAll(client)).join()).toContain('token_expired');
  });
});

describe('an upgrade to a WebSocket', () => {
  it('is accepted once for a connection, and carries its session only', async () => {
    const { client, sessionId } = await join();
    const upgrades = await Promise.all([client.openUpgrade(), client.openUpgrade()]);
    onTestFinished(() => upgrades.forEach(({ wire }) => void wire.terminate()));
    for (const upgrade of upgrades) upgrade.send('2probe', '5', PING);
    const received = () => upgrades.map((upgrade) => upgrade.received.join());
    await expect.poll(() => received().some((text) => text.includes(sessionId))).toBe(true);
    const third = await client.openUpgrade();
    third.send('2probe', '5', PING);
    await third.closed;
    expect(third.received).toEqual([]);
    expect(received().filter((text) => text !== '')).toHaveLength(1);
  });

  it('is refused for a connection of another host', async () => {
    const { client } = await join();
    const upgrade = await client.openUpgrade(client.url.replace(hosts.b.url, hosts.a.url));
    await upgrade.closed;
    expect(upgrade.received).toEqual([]);
    expect(await client.send(PING)).toBe(200);
    expect((await client.read()).text).toContain('pong');
  });
});
