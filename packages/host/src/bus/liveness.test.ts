import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import {
  joinForTest,
  runStatement,
  startMember,
  terminateSessions,
} from '../../test/support/cluster.js';
import { startPostgres } from '../../test/support/postgres-server.js';
import { startTcpProxy } from '../../test/support/tcp-proxy.js';
import { createTestDatabase, type TestDatabase } from '../../test/support/test-database.js';
import type { Cluster } from './cluster.js';
import { createHostId, SoleHost } from './host-bus.js';

let database: TestDatabase;
let url: string;
const join = (databaseUrl = url) => joinForTest({ databaseUrl, dataDir: database.options.dataDir });
beforeAll(async () => {
  database = await createTestDatabase('postgres');
  url = database.options.databaseUrl ?? '';
});
afterAll(() => database.drop());

/** What a host reports about itself and the others. */
function observe({ liveness }: Cluster) {
  const events: string[] = [];
  liveness.onHostLost((hostId) => events.push(`host ${hostId}`));
  liveness.onLost(() => events.push('lost'));
  liveness.onRegained(() => events.push('regained'));
  return events;
}

/** Waits until the server itself has been running for long enough to declare hosts dead. */
async function untilSettled({ liveness }: Cluster): Promise<void> {
  await expect.poll(() => liveness.findDeadHosts(['none'])).toEqual(['none']);
}

it('SoleHost.findDeadHosts returns all hosts except itself', async () => {
  const host = new SoleHost('own');
  expect(await host.findDeadHosts(['a', 'own', 'b'])).toEqual(['a', 'b']);
});

it('PostgresLiveness.findDeadHosts finds hosts that have ended, and no running ones', async () => {
  const [a, b, c] = [await join(), await join(), await join()];
  await untilSettled(a);
  const others = [createHostId(), 'boot:4026/12/0011223344556677', ''];
  const all = [a.hostId, b.hostId, c.hostId, ...others];
  expect(await a.liveness.findDeadHosts(all)).toEqual(others);
  await c.close();
  await expect.poll(() => b.liveness.findDeadHosts(all)).toEqual([c.hostId, ...others]);
  expect(await a.liveness.findDeadHosts([])).toEqual([]);
});

it('PostgresLiveness.findDeadHosts does not see the hosts of another database as running', async () => {
  const other = await createTestDatabase('postgres');
  try {
    const a = await join();
    const b = await joinForTest({ ...other.options });
    await untilSettled(a);
    expect(await a.liveness.findDeadHosts([b.hostId])).toEqual([b.hostId]);
    await b.close();
  } finally {
    await other.drop();
  }
});

it('PostgresLiveness.onHostLost reports killed processes to every other host, once', async () => {
  const hosts = [await join(), await join(), await join()];
  const [first] = hosts as [Cluster];
  await untilSettled(first);
  const events = hosts.map(observe);
  const options = { databaseUrl: url, dataDir: database.options.dataDir };
  const members = await Promise.all([startMember(options), startMember(options)]);
  const ids = members.map(({ hostId }) => hostId);
  await Promise.all(members.map((member) => member.kill()));
  const expected = ids.map((id) => `host ${id}`).sort();
  for (const each of events) await expect.poll(() => each.toSorted()).toEqual(expected);
  expect(await first.liveness.findDeadHosts(ids)).toEqual(ids);
});

it('PostgresLiveness.onHostLost reports a process that hangs, whose connections stay open', async () => {
  const a = await join();
  await untilSettled(a);
  const events = observe(a);
  const { hostId, child } = await startMember({
    databaseUrl: url,
    dataDir: database.options.dataDir,
  });
  child.kill('SIGSTOP');
  await expect.poll(() => events).toEqual([`host ${hostId}`]);
  expect(await a.liveness.findDeadHosts([hostId])).toEqual([hostId]);
  child.kill('SIGCONT');
  // It connects again by itself.
  await expect.poll(() => a.liveness.findDeadHosts([hostId])).toEqual([]);
});

const countWaits = async (databaseUrl: string) =>
  (
    await runStatement(
      databaseUrl,
      "select 1 from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())",
    )
  ).length;

it('PostgresLiveness keeps a host alive that loses one of its connections', async () => {
  const [a, b] = [await join(), await join()];
  await untilSettled(a);
  const [atA, atB] = [observe(a), observe(b)];
  for (const role of ['listener', 'watcher', 'notifier']) {
    expect(await terminateSessions(url, a.hostId, role)).toBe(1);
    await expect
      .poll(() =>
        runStatement(url, 'select 1 from pg_stat_activity where application_name = $1', [
          `sibyl ${a.hostId} ${role}`,
        ]),
      )
      .toHaveLength(1);
    // The new session holds the lock too, before the next one ends.
    await expect.poll(() => countLocks(a.hostId)).toBe(2);
  }
  expect(atA).toEqual([]);
  expect(atB).toEqual([]);
});

const countLocks = async (hostId: string) =>
  (
    await runStatement(
      url,
      "select 1 from pg_locks join pg_stat_activity using (pid) where locktype = 'advisory' and granted and mode = 'ShareLock' and application_name like $1",
      [`sibyl ${hostId} %`],
    )
  ).length;

it('PostgresLiveness reports that a host is lost and regained, and declares no host dead for 10 s', async () => {
  const [a, b] = [await join(), await join()];
  await untilSettled(a);
  const [atA, atB] = [observe(a), observe(b)];
  await terminateSessions(url, a.hostId);
  await expect.poll(() => atA).toEqual(['lost', 'regained']);
  const regained = performance.now();
  expect(a.liveness.isAlive).toBe(true);
  await expect.poll(() => atB.filter((event) => event !== `host ${a.hostId}`)).toEqual([]);
  expect(await a.liveness.findDeadHosts(['none'])).toEqual([]);
  expect(await b.liveness.findDeadHosts([a.hostId, 'none'])).toEqual(['none']);
  await untilSettled(a);
  expect(performance.now() - regained).toBeGreaterThan(9_900);
});

it('PostgresLiveness.findDeadHosts waits for a host that has lost its connections to connect again', async () => {
  const [a, b] = [await join(), await join()];
  await untilSettled(b);
  const atA = observe(a);
  await terminateSessions(url, a.hostId);
  expect(await b.liveness.findDeadHosts([a.hostId])).toEqual([]);
  await expect.poll(() => atA).toEqual(['lost', 'regained']);
});

it('PostgresLiveness notices a connection that is stuck, and reports deaths it missed meanwhile', async () => {
  const proxy = await startTcpProxy(url);
  try {
    const [a, b] = [await join(proxy.url), await join()];
    await untilSettled(a);
    await expect.poll(() => countWaits(url)).toBeGreaterThanOrEqual(2);
    const events = observe(a);
    proxy.freeze();
    await expect.poll(() => events).toEqual(['lost']);
    expect(a.liveness.isAlive).toBe(false);
    expect(await a.liveness.findDeadHosts(['none'])).toEqual([]);
    await b.close();
    proxy.thaw();
    await expect.poll(() => events).toEqual(['lost', 'regained', `host ${b.hostId}`]);
  } finally {
    await proxy.close();
  }
});

it('PostgresLiveness declares no host dead in the first 10 s of the server', async () => {
  const server = await startPostgres();
  const readAge = async () => {
    const [row] = await runStatement(
      server.url,
      'select extract(epoch from clock_timestamp() - pg_postmaster_start_time())::float8 as age',
    );
    return Number(row?.age);
  };
  try {
    const a = await join(server.url);
    for (;;) {
      const dead = await a.liveness.findDeadHosts(['none']);
      const age = await readAge();
      if (dead.length > 0) {
        expect(age).toBeGreaterThan(10);
        break;
      }
      expect(age).toBeLessThan(60);
      await sleep(100);
    }
    await a.close();
  } finally {
    await server.stop();
  }
});
