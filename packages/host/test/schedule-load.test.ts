import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type AnsweringModel, startAnsweringModel, toMarker } from './support/answering-model.js';
import { type ClusterHost, startHosts } from './support/host-cluster.js';
import { createSchedule } from './support/schedules.js';
import { openSession } from './support/stream.js';
import { startTcpProxy, type TcpProxy } from './support/tcp-proxy.js';
import { createTestDatabase, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

const CALLERS = 200;
const PER_MINUTE = 10;
const TURNS = 8;
const NETWORK_MS = 5;
/** Of a caller that was refused. */
const PAUSE_MS = 1_000;

let database: TestDatabase;
let model: AnsweringModel;
let proxy: TcpProxy;
let host: ClusterHost;
beforeAll(async () => {
  database = await createTestDatabase('postgres');
  model = await startAnsweringModel();
  proxy = await startTcpProxy(database.env.DATABASE_URL ?? '');
  const env = {
    ...model.env,
    ...database.env,
    SCHEDULES_WEBHOOKS_PER_MINUTE: String(PER_MINUTE),
    DATABASE_URL: proxy.url,
  };
  [host] = (await startHosts(1, { env })) as [ClusterHost];
});
afterAll(async () => {
  await host?.close();
  model?.close();
  await proxy?.close();
  await database?.drop();
});

it('POST of a webhook by 200 callers at once leaves the connections to the turns of others', async () => {
  const [alice, bob] = [new TestUser(host), new TestUser(host)];
  const trigger = { type: 'webhook' } as const;
  const hook = await createSchedule(alice, { message: toMarker('hook', 1), trigger });
  const sessionId = await openSession(bob);
  const measureTurns = async () => {
    const times: number[] = [];
    for (let number = 0; number < TURNS; number++) {
      const startedAt = performance.now();
      const body = { message: toMarker(sessionId, number) };
      const { status } = await bob.request('POST', `/messages/${sessionId}`, { body });
      expect(status).toBe(200);
      times.push(performance.now() - startedAt);
    }
    return times.toSorted((a, b) => a - b)[TURNS / 2] ?? 0;
  };
  // A lock is held for as long as the statements of its transaction are on their way.
  proxy.delay(NETWORK_MS);
  await measureTurns();
  const quiet = await measureTurns();
  const calls = callOften(hook.webhookUrl ?? '', hook.webhookSecret);
  await expect.poll(() => calls.answers.length).toBeGreaterThan(PER_MINUTE);
  const loaded = await measureTurns();
  await calls.stop();
  const counts = Object.groupBy(calls.answers, ({ status }) => String(status));
  expect(Object.keys(counts).toSorted()).toEqual(['200', '429']);
  for (const { retryAfter } of counts['429'] ?? []) expect(retryAfter).toBeGreaterThan(0);
  expect(loaded).toBeLessThan(quiet * 5);
});

/** Each caller calls again after its answer. */
function callOften(url: string, secret = '') {
  const answers: { readonly status: number; readonly retryAfter: number }[] = [];
  let isStopped = false;
  const call = async () => {
    while (!isStopped) {
      const headers = { authorization: `Bearer ${secret}` };
      const response = await fetch(url, { method: 'POST', headers });
      await response.arrayBuffer();
      const retryAfter = Number(response.headers.get('retry-after'));
      answers.push({ status: response.status, retryAfter });
      if (!response.ok) await sleep(PAUSE_MS);
    }
  };
  const calling = Promise.allSettled(Array.from({ length: CALLERS }, call));
  return {
    answers,
    stop: async () => {
      isStopped = true;
      await calling;
    },
  };
}
