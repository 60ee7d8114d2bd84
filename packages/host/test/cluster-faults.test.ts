import { ERASE_ABILITY, toOracleResource } from '@sibyl/protocol/decisions';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import { type AnsweringModel, startAnsweringModel } from './support/answering-model.js';
import { ChatLoad, inspectLoad, NOTHING_WRONG } from './support/chat-load.js';
import { runStatement } from './support/cluster.js';
import { type CommitProxy, startCommitProxy } from './support/commit-proxy.js';
import { type ClusterHost, startHosts } from './support/host-cluster.js';
import { RestartablePostgres } from './support/restartable-postgres.js';
import { type RoundRobinProxy, startRoundRobinProxy } from './support/round-robin-proxy.js';
import { joinSession } from './support/session-socket.js';
import { join, openSession, stream } from './support/stream.js';
import { startTcpProxy, type TcpProxy } from './support/tcp-proxy.js';
import { TestUser } from './support/user.js';

const CHATS = 6;
const PROGRESS = 20;
const CRASHES = scale(5, 2);
const FREEZE_MS = 20_000;
const LOST_COMMITS = scale(20, 5);
const END = { timeout: 120_000 };

let postgres: RestartablePostgres;
let model: AnsweringModel;
let hosts: ClusterHost[];
let direct: TcpProxy;
let commits: CommitProxy;
let balancer: RoundRobinProxy;
beforeAll(async () => {
  postgres = await RestartablePostgres.start();
  model = await startAnsweringModel();
  direct = await startTcpProxy(postgres.url);
  commits = await startCommitProxy(postgres.url);
  const env = { ...model.env, DATABASE_URL: commits.url, DATABASE_DIRECT_URL: direct.url };
  hosts = await startHosts(3, { env });
  balancer = await startRoundRobinProxy(hosts.map(({ url }) => url));
});
afterAll(async () => {
  balancer?.close();
  await Promise.all((hosts ?? []).map((host) => host.close()));
  commits?.close();
  await direct?.close();
  model?.close();
  await postgres?.stop();
});

const newUser = (url = balancer.url) => new TestUser({ url, did: hosts[0]?.did ?? '' });
const newUsers = () => Array.from({ length: CHATS }, () => newUser());

async function untilProgress(load: ChatLoad): Promise<void> {
  const before = load.acknowledged;
  await expect.poll(() => load.acknowledged, END).toBeGreaterThan(before + PROGRESS);
}

/** Runs the fault under load and checks everything afterwards; the hosts are never restarted. */
async function surviveUnderLoad(fault: () => Promise<void>): Promise<ChatLoad> {
  const processes = hosts.map(({ running }) => running.child);
  const firstCall = model.calls.length;
  const load = await ChatLoad.start(newUsers());
  await untilProgress(load);
  await fault();
  await untilProgress(load);
  await load.stop();
  await expect.poll(() => load.open, END).toEqual([]);
  expect(await inspectLoad(load, model.calls.slice(firstCall))).toEqual(NOTHING_WRONG);
  expect(processes.map(({ exitCode }) => exitCode)).toEqual(processes.map(() => null));
  return load;
}

async function untilReady(): Promise<void> {
  for (const { url } of hosts)
    await expect.poll(async () => (await fetch(`${url}/health/ready`)).status, END).toBe(200);
}

describe('PostgreSQL', () => {
  it(`that crashes ${CRASHES} times under load costs nothing that was acknowledged`, {
    timeout: 300_000,
  }, async () => {
    await surviveUnderLoad(async () => {
      for (let crash = 0; crash < CRASHES; crash++) {
        await postgres.crash();
        await untilReady();
      }
    });
  });

  it('that is down makes /health/ready and new messages answer 503 with Retry-After', {
    timeout: 300_000,
  }, async () => {
    const user = newUser(hosts[0]?.url);
    const sessionId = await openSession(user);
    const isBack = postgres.crash(20_000);
    await expect
      .poll(async () => (await fetch(`${user.host.url}/health/ready`)).status, END)
      .toBe(503);
    const answer = await user.request('POST', `/messages/${sessionId}`, {
      body: { message: 'Hello' },
    });
    expect([answer.status, answer.body.code]).toEqual([503, 'store_unavailable']);
    expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0);
    await isBack;
    await untilReady();
    expect((await user.request('GET', `/messages/${sessionId}`)).body.messages).toEqual([]);
  });

  it('that does not answer for 20 s under load costs nothing that was acknowledged', {
    timeout: 300_000,
  }, async () => {
    await surviveUnderLoad(async () => {
      await postgres.freeze(FREEZE_MS);
      await untilReady();
    });
  });
});

describe('without messages between the hosts', () => {
  it('everything under load stays correct', { timeout: 300_000 }, async () => {
    direct.mute();
    try {
      const load = await surviveUnderLoad(async () => {});
      expect(load.countStatus('finished')).toBe(load.chats.flatMap(({ sent }) => sent).length);
    } finally {
      direct.unmute();
    }
  });

  it('POST /messages/abort, GET /runs/:runId and queues work across hosts', async () => {
    const alice = newUser(hosts[0]?.url);
    const [there, elsewhere] = hosts.slice(1).map((host) => alice.at(host)) as [TestUser, TestUser];
    direct.mute();
    try {
      const sessionId = await openSession(alice);
      const live = await stream(alice, sessionId, { message: '<muted/1> Hello' });
      const remote = await join(there, live.runId, 0);
      const second = await stream(there, sessionId, { message: '<muted/2> Hello' });
      expect(await remote.toEnd()).toEqual(await live.toEnd());
      expect((await second.toEnd()).at(-1)?.data.status).toBe('finished');
      const third = await stream(elsewhere, sessionId, { message: '<muted/3> Hello' });
      const { body } = await alice.request('POST', '/messages/abort', { body: { sessionId } });
      const status = (await third.toEnd()).at(-1)?.data.status;
      expect([body.success, status]).toEqual(
        // The answer may have been complete already.
        status === 'finished' ? [expect.any(Boolean), 'finished'] : [true, 'aborted'],
      );
    } finally {
      direct.unmute();
    }
  });

  it('sockets of other hosts are not refused, and the history is complete', async () => {
    const alice = newUser(hosts[0]?.url);
    const there = alice.at(hosts[1] as ClusterHost);
    const sessionId = await openSession(alice);
    direct.mute();
    try {
      const socket = await joinSession(there, sessionId);
      const live = await stream(alice, sessionId, { message: '<muted-socket/1> Hello' });
      await live.toEnd();
      // However late, a client must learn that there are new messages.
      expect((await there.request('GET', `/messages/${sessionId}`)).body.messages).toHaveLength(2);
      // A host that has heard nothing for a while makes its sockets connect again and read what they may have missed.
      expect(socket.all('(disconnect)').filter((reason) => reason !== 'transport close')).toEqual(
        [],
      );
    } finally {
      direct.unmute();
    }
  });

  it('hosts that lose their connections reconnect, and nothing acknowledged is lost', {
    timeout: 300_000,
  }, async () => {
    await surviveUnderLoad(async () => {
      for (let time = 0; time < CRASHES; time++) {
        direct.disconnect();
        await new Promise((resolve) => setTimeout(resolve, 3_000));
        direct.reconnect();
        await untilReady();
      }
    });
  });
});

describe('a lost reply to COMMIT', () => {
  it(`of POST /messages leaves no open run, in ${LOST_COMMITS} cases`, {
    timeout: 300_000,
  }, async () => {
    const [host] = hosts as [ClusterHost];
    const alice = newUser(host.url);
    for (let i = 0; i < LOST_COMMITS; i++) {
      const sessionId = await openSession(alice);
      const marker = `<lost-${i}-${Date.now()}/1>`;
      const lost = commits.loseCommit(marker);
      const request = {
        body: { message: `${marker} Hello` },
        headers: { 'idempotency-key': `lost-${i}` },
      };
      const first = await alice.request('POST', `/messages/${sessionId}`, request);
      await lost;
      if (first.status !== 200) {
        expect(first.status).toBe(503);
        expect(first.headers.has('retry-after')).toBe(true);
      }
      // Known to its host, which executes it, or closed; never open without a host.
      await expect
        .poll(async () => (await alice.request('GET', `/sessions/${sessionId}/run`)).body.run)
        .toMatchObject({ status: expect.stringMatching(/^(finished|interrupted|failed)$/) });
      const again = await alice.request('POST', `/messages/${sessionId}`, request);
      if (first.status === 200) expect(again.body).toEqual(first.body);
      else expect([200, 409]).toContain(again.status);
      const { messages } = (await alice.request('GET', `/messages/${sessionId}`)).body;
      const questions = messages.filter(({ type }: { type: string }) => type === 'human');
      expect(questions).toHaveLength(1);
    }
  });

  it.each([
    { name: 'with its connection', staysOpen: false },
    { name: 'on a connection that stays open', staysOpen: true },
  ])(
    'of the end of a turn does not end it twice: $name',
    { timeout: 120_000 },
    async ({ staysOpen }) => {
      const alice = newUser(hosts[0]?.url);
      const sessionId = await openSession(alice);
      const marker = `<ending-${Date.now()}/1>`;
      // The model repeats the marker, so it is in every transaction that stores the answer.
      const lost = commits.loseCommit(`Answer to ${marker}`, { staysOpen });
      const live = await stream(alice, sessionId, { message: `${marker} Hello` });
      await lost;
      expect((await live.toEnd()).at(-1)?.data.status).toBe('finished');
      const { messages } = (await alice.request('GET', `/messages/${sessionId}`)).body;
      expect(messages.map(({ type }: { type: string }) => type)).toEqual(['human', 'ai']);
      expect(await (await join(alice, live.runId, 0)).toEnd()).toEqual(live.frames);
    },
  );

  it('of the claim of a queued turn leaves no turn that runs forever', {
    timeout: 120_000,
  }, async () => {
    const alice = newUser(hosts[0]?.url);
    const there = alice.at(hosts[1] as ClusterHost);
    const sessionId = await openSession(alice);
    let hasHappened = false;
    const lost = commits.loseCommit('set "host_id" = $1, "started_at" = $2').then(() => {
      hasHappened = true;
    });
    // The first turn may end before the second one is queued.
    for (let number = 1; !hasHappened; number += 2) {
      const first = await stream(alice, sessionId, { message: `<claim/${number}> Hello` });
      const queued = await stream(there, sessionId, { message: `<claim/${number + 1}> Hello` });
      expect((await first.toEnd()).at(-1)?.data.status).toBe('finished');
      expect((await queued.toEnd()).at(-1)?.data.status).toBe('finished');
    }
    await lost;
  });

  it('of the start of an upload reserves no space for it', async () => {
    const alice = newUser(hosts[0]?.url);
    const lost = commits.loseCommit('insert into "files"');
    const upload = () =>
      fetch(`${hosts[0]?.url}/files?name=a.txt`, {
        method: 'POST',
        headers: alice.headers,
        body: 'x'.repeat(10_000),
      });
    expect((await upload()).status).toBe(503);
    await lost;
    expect((await alice.request('GET', '/files')).body.usedBytes).toBe(0);
    expect((await upload()).status).toBe(200);
  });

  it.each([
    ['its first write', 'insert into "database_info"', 200],
    ['a write in the middle', 'delete from "sessions"', 503],
    ['its last write', 'delete from "database_info"', 503],
  ])('of %s does not keep DELETE /me from its end', async (_, statement, status) => {
    const [host] = hosts as [ClusterHost];
    const alice = newUser(host.url);
    await openSession(alice);
    const lost = commits.loseCommit(statement);
    const capability = { can: ERASE_ABILITY, with: toOracleResource(host.did) };
    const invocation = alice.delegate({ capabilities: [capability], ttlSeconds: 300 });
    expect((await alice.request('DELETE', '/me', { body: { invocation } })).status).toBe(status);
    await lost;
    const count = async () => (await alice.request('GET', '/sessions')).body.total;
    await expect.poll(count, { timeout: 30_000 }).toBe(0);
    const open = "select key from database_info where key like 'erasure %'";
    await expect.poll(() => runStatement(postgres.url, open), { timeout: 30_000 }).toEqual([]);
  });
});
