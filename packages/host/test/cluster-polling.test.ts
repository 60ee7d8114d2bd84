import { afterAll, beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest';
import { runStatement } from './support/cluster.js';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { emitter, routedSteps } from './support/emitter.js';
import { useHostPair } from './support/host-pair.js';
import { resultsIn, scroll } from './support/page-tools.js';
import { PollingClient } from './support/polling-client.js';
import { type RoundRobinProxy, startRoundRobinProxy } from './support/round-robin-proxy.js';
import { joinSession } from './support/session-socket.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

let model: ControlledModel;
let balancer: RoundRobinProxy;
const hosts = useHostPair(async () => {
  model = await startControlledModel();
  return { env: { ...model.env, TRUST_PROXY: 'loopback' }, plugins: [emitter] };
});
beforeAll(async () => {
  balancer = await startRoundRobinProxy([hosts.a.url, hosts.b.url]);
});
afterAll(() => {
  balancer?.close();
  model.close();
});

let alice: TestUser;
let sessionId: string;
beforeEach(async () => {
  alice = new TestUser(hosts.a).at({ ...hosts.a, url: balancer.url });
  sessionId = await openSession(alice);
});

const POLLING = { transports: ['polling'], reconnectionDelay: 50, reconnectionDelayMax: 200 };
const DEFAULT = { ...POLLING, transports: ['polling', 'websocket'] };
/** Starts a turn on host A that calls a tool, in the session of the test. */
async function call(name: string, input: object) {
  const live = await stream(alice.at(hosts.a), sessionId, { message: 'go', tools: [scroll] });
  (await model.next()).call({ name, input });
  return async () => {
    const next = await model.next();
    const result = resultsIn(next).at(-1);
    next.finish();
    await live.toEnd();
    return result;
  };
}

const listSockets = () =>
  runStatement(hosts.database.env.DATABASE_URL ?? '', 'select * from socket_hosts');

it.each([
  ['polls', POLLING],
  ['has the default transports', DEFAULT],
])(
  'a Socket.IO client that %s receives and sends events through a round robin',
  async (_, options) => {
    // Each connection begins at another host.
    for (let i = 0; i < 4; i++) {
      const socket = await joinSession(alice, sessionId, { ...options, reconnection: false });
      expect(await socket.ask('ping', 'pong')).toMatchObject({ sessionId });
      const steps = Array.from({ length: 20 }, (_, step) => `${step}`);
      expect(await (await call('route', { steps }))()).toBe(20);
      await expect.poll(() => routedSteps(socket)).toEqual(steps);
      const untilResult = await call('scroll', { by: 3 });
      const { toolCallId, args } = await socket.until('browser_tool_call');
      expect(args).toEqual({ by: 3 });
      socket.socket.emit('tool_result', { toolCallId, result: 'scrolled "é€😀" \u0000' });
      expect(await untilResult()).toBe('scrolled "é€😀" \u0000');
      expect(socket.all('(disconnect)')).toEqual([]);
      socket.socket.disconnect();
      await expect.poll(listSockets).toEqual([]);
    }
  },
);

it('PollingRelay passes on large results and events', async () => {
  const socket = await joinSession(alice, sessionId, { ...POLLING, reconnection: false });
  const result = 'é"'.repeat(9_000);
  const untilResult = await call('scroll', { by: 3 });
  const { toolCallId } = await socket.until('browser_tool_call');
  socket.socket.emit('tool_result', { toolCallId, result });
  expect(await untilResult()).toBe(result);
  const step = '"é'.repeat(150_000);
  await (await call('route', { steps: [step] }))();
  await expect.poll(() => routedSteps(socket)).toEqual([step]);
  expect(socket.all('(disconnect)')).toEqual([]);
});

/** A client by polling that is connected to host A. */
async function joinAtA() {
  const user = alice.at(hosts.a);
  const client = await PollingClient.join(user, sessionId, { invocation: user.mint() });
  onTestFinished(async () => void (await client.send('1')));
  const sid = new URL(client.url).searchParams.get('sid') ?? '';
  /** Asks the other host. */
  const askB = (id = sid, init: RequestInit = {}) =>
    fetch(client.url.replace(hosts.a.url, hosts.b.url).replace(sid, id), init);
  return { client, sid, askB };
}

it('PollingRelay refuses a body above SOCKET_MESSAGE_LIMIT with 413, as the host of the socket does', async () => {
  const { askB } = await joinAtA();
  const sent = await askB(undefined, { method: 'POST', body: '4'.repeat(300_000) });
  expect(sent.status).toBe(413);
});

it('PollingRelay answers as a host alone for connections that have ended, were invented, or are of an unknown host', async () => {
  const { sid, client, askB } = await joinAtA();
  const unknown = { code: 1, message: 'Session ID unknown' };
  const hostId = sid.slice(0, 12);
  expect(hostId).toMatch(/^[0-9a-f]{12}$/);
  expect(sid).toHaveLength(32);
  for (const id of [`${hostId}${'A'.repeat(20)}`, `${'0'.repeat(12)}${sid.slice(12)}`, hostId, 'x'])
    expect([(await askB(id)).status, await (await askB(id)).json()], id).toEqual([400, unknown]);
  // The client leaves.
  expect(await client.send('1')).toBe(200);
  expect((await askB()).status).toBe(400);
});

it('PollingRelay closes the connection of a client that leaves while another host waits for it', async () => {
  const { askB } = await joinAtA();
  await expect.poll(listSockets).toHaveLength(1);
  const leaving = new AbortController();
  const readAll = async () => {
    for (;;) await (await askB(undefined, { signal: leaving.signal })).text();
  };
  // By then it has read what was sent at the beginning.
  setTimeout(() => leaving.abort(), 1_000);
  await expect(readAll()).rejects.toThrow('aborted');
  // Much sooner than without a ping.
  await expect.poll(listSockets, { timeout: 15_000 }).toEqual([]);
});

it('PollingRelay no longer asks other hosts for an address whose requests they refuse', async () => {
  const { sid, askB } = await joinAtA();
  const invented = `${sid.slice(0, 12)}${'B'.repeat(20)}`;
  const headers = { 'x-forwarded-for': '203.0.113.9' };
  const post = (from: Record<string, string>) =>
    askB(undefined, { method: 'POST', body: '42["ping"]', headers: from });
  expect((await post(headers)).status).toBe(200);
  for (let i = 0; i < 130; i++) expect((await askB(invented, { headers })).status).toBe(400);
  expect((await post(headers)).status).toBe(400);
  expect((await post({ 'x-forwarded-for': '203.0.113.10' })).status).toBe(200);
});
