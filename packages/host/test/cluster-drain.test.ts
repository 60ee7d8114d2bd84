import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { type ClusterHost, useControlledCluster } from './support/host-cluster.js';
import { type RoundRobinProxy, startRoundRobinProxy } from './support/round-robin-proxy.js';
import { joinSession } from './support/session-socket.js';
import { join, openSession, stream } from './support/stream.js';
import type { TestUser } from './support/user.js';

const test = useControlledCluster();
let proxy: RoundRobinProxy;
beforeAll(async () => {
  proxy = await startRoundRobinProxy(test.hosts.map(({ url }) => url));
});
afterAll(() => proxy?.close());

const isReady = async ({ url }: ClusterHost) => (await fetch(`${url}/health/ready`)).status;
const readContents = async (user: TestUser, sessionId: string): Promise<string[]> =>
  (await user.request('GET', `/messages/${sessionId}`)).body.messages.map(
    ({ content }: { content: string }) => content,
  );

/** Stops a host for the rest of the test. */
function terminate(host: ClusterHost): void {
  host.running.child.kill('SIGTERM');
  onTestFinished(async () => {
    await host.kill();
    await host.start();
  });
}

it('a host that receives SIGTERM finishes running turns and hands over queued ones', {
  timeout: 120_000,
}, async () => {
  const [here, there] = test.newUser();
  const [stopping] = test.hosts;
  const sessionId = await openSession(here);
  const live = await stream(here, sessionId, { message: 'one' });
  const turn = await test.model.next();
  const queued = await stream(here, sessionId, { message: 'two' });
  const last = await stream(here, sessionId, { message: 'three' });
  turn.say('almost ');
  await live.untilEvent('message');

  terminate(stopping);
  await expect.poll(() => isReady(stopping)).toBe(503);
  const refused = await here.request('POST', `/messages/${await openSession(there)}`, {
    body: { message: 'new' },
  });
  expect([refused.status, refused.body.code]).toEqual([503, 'host_stopping']);
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);

  turn.answer('done');
  expect((await live.toEnd()).at(-1)?.data).toMatchObject({ status: 'finished' });
  for (const [text, reply] of [
    ['two', '2'],
    ['three', '3'],
  ] as const) {
    const next = await test.model.next();
    expect(next.body.messages.at(-1).content).toContain(text);
    next.answer(reply);
  }
  expect(await stopping.running.ended).toBe(0);
  expect(stopping.running.output()).toContain('a stream ended early; its client can reconnect');
  expect(stopping.running.output()).not.toContain('stream failed');
  for (const { runId } of [queued, last])
    expect((await (await join(there, runId, 0)).toEnd()).at(-1)?.data).toMatchObject({
      status: 'finished',
    });
  expect(await readContents(there, sessionId)).toEqual([
    'one',
    'almost done',
    'two',
    '2',
    'three',
    '3',
  ]);
});

it('a host that receives SIGTERM makes its sockets reconnect elsewhere before its turns end', {
  timeout: 120_000,
}, async () => {
  const [here, there] = test.newUser();
  const [stopping] = test.hosts;
  const sessionId = await openSession(here);
  const live = await stream(here, sessionId, { message: 'one' });
  const turn = await test.model.next();
  const direct = await joinSession(here, sessionId, { reconnection: false });
  const options = { reconnectionDelay: 20, reconnectionDelayMax: 100 };
  const balanced = here.at({ url: proxy.url, did: here.host.did });
  const socket = await joinSession(balanced, sessionId, options);
  terminate(stopping);
  await direct.until('(disconnect)');
  turn.answer('1');
  expect((await live.toEnd()).at(-1)?.data).toMatchObject({ status: 'finished' });
  expect(await stopping.running.ended).toBe(0);
  // The client of the proxy has reached another host, and receives events there.
  const after = await stream(there, sessionId, { message: 'two' });
  (await test.model.next()).call({ name: 'list_capabilities', input: {} });
  (await test.model.next()).answer('2');
  await after.toEnd();
  await socket.until('tool_call', ({ payload }) => payload.status !== 'isRunning');
});

it('a host that receives SIGTERM stores what does not end, and others show it', {
  timeout: 120_000,
}, async () => {
  const [here, there] = test.newUser();
  const [stopping] = test.hosts;
  const sessionId = await openSession(here);
  const live = await stream(here, sessionId, { message: 'endless' });
  const turn = await test.model.next();
  turn.say('half');
  await live.untilEvent('message');
  const remote = await join(there, live.runId, 0);
  terminate(stopping);
  expect((await remote.toEnd()).at(-1)?.data).toMatchObject({
    status: 'interrupted',
    partialText: 'half',
  });
  expect(await stopping.running.ended).toBe(0);
  expect(await readContents(there, sessionId)).toEqual(['endless', 'half']);
});

it('hosts are restarted one at a time under SIGTERM, and a session continues on each', {
  timeout: 240_000,
}, async () => {
  const users = test.newUser();
  const sessionId = await openSession(users[0]);
  for (const [i, host] of test.hosts.entries()) {
    host.running.child.kill('SIGTERM');
    expect(await host.running.ended).toBe(0);
    const live = await stream(users[(i + 1) % 3] as TestUser, sessionId, { message: `q${i}` });
    (await test.model.next()).answer(`a${i}`);
    await live.toEnd();
    await host.start();
  }
  expect(await readContents(users[0], sessionId)).toEqual(['q0', 'a0', 'q1', 'a1', 'q2', 'a2']);
});
