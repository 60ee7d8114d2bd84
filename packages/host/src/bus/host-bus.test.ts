import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { joinForTest, runStatement, terminateSessions } from '../../test/support/cluster.js';
import { startTcpProxy } from '../../test/support/tcp-proxy.js';
import { createTestDatabase, type TestDatabase } from '../../test/support/test-database.js';
import type { Cluster } from './cluster.js';
import { MemoryHostBus } from './host-bus.js';
import { PostgresSession } from './postgres-session.js';

/** The payloads of all messages that a host receives. */
function collect({ bus }: Pick<Cluster, 'bus'>): { from: string; text: string }[] {
  const received: { from: string; text: string }[] = [];
  bus.on('run-changed', ({ runId: text }, from) => received.push({ from, text }));
  return received;
}

const send = (from: Pick<Cluster, 'bus'>, to: string, text: string) =>
  from.bus.send(to, 'run-changed', { owner: 'did:a', runId: text });

describe('MemoryHostBus', () => {
  const bus = new MemoryHostBus('own', pino({ level: 'silent' }));

  it('delivers messages to itself, later, and no others', async () => {
    const received = collect({ bus });
    expect(send({ bus }, 'own', 'a')).toBe(true);
    expect(send({ bus }, 'others', 'b')).toBe(true);
    expect(received).toEqual([]);
    await expect.poll(() => received).toEqual([{ from: 'own', text: 'a' }]);
  });

  it('calls no listener that was removed, and all others even if one fails', async () => {
    const texts: string[] = [];
    bus.on('run-changed', () => {
      throw new Error('fails');
    });
    const remove = bus.on('run-changed', ({ runId }) => texts.push(`removed ${runId}`));
    bus.on('run-changed', ({ runId }) => texts.push(runId));
    remove();
    send({ bus }, 'own', 'a');
    await expect.poll(() => texts).toEqual(['a']);
  });
});

describe('PostgresHostBus', () => {
  let database: TestDatabase;
  let url: string;
  const join = (databaseUrl = url) =>
    joinForTest({ databaseUrl, dataDir: database.options.dataDir });
  beforeAll(async () => {
    database = await createTestDatabase('postgres');
    url = database.options.databaseUrl ?? '';
  });
  afterAll(() => database.drop());

  it('delivers messages to one host, to all others, or to the host itself', async () => {
    const [a, b, c] = [await join(), await join(), await join()];
    const [atA, atB, atC] = [collect(a), collect(b), collect(c)];
    send(a, b.hostId, 'to b');
    send(a, 'others', 'to others');
    send(a, a.hostId, 'to itself');
    send(a, c.hostId, 'to c');
    const from = a.hostId;
    await expect
      .poll(() => atB)
      .toEqual([
        { from, text: 'to b' },
        { from, text: 'to others' },
      ]);
    await expect.poll(() => atC).toContainEqual({ from, text: 'to c' });
    expect(atC).toContainEqual({ from, text: 'to others' });
    expect(atA).toEqual([{ from, text: 'to itself' }]);
  });

  it('delivers many messages in order, also equal ones, in far fewer batches', async () => {
    const [a, b] = [await join(), await join()];
    const received = collect(b);
    const texts = Array.from({ length: 10_000 }, (_, i) => `${i % 7}`);
    for (const [i, text] of texts.entries()) {
      send(a, b.hostId, text);
      if (i % 100 === 0) await new Promise(setImmediate);
    }
    await expect.poll(() => received.length).toBe(texts.length);
    expect(received.map(({ text }) => text)).toEqual(texts);
    const { sent, batches, bytes, dropped } = a.bus.figures;
    expect({ isSent: sent >= texts.length, dropped }).toEqual({ isSent: true, dropped: 0 });
    expect(batches * 10).toBeLessThan(sent);
    expect(bytes).toBeGreaterThan(texts.length * 10);
    expect(b.bus.figures.received).toBeGreaterThanOrEqual(texts.length);
  });

  it('delivers a message of 900 kB whole, and rejects a message beyond 1 MiB', async () => {
    const [a, b] = [await join(), await join()];
    const received = collect(b);
    const large = 'ä\u0000"😀'.repeat(64_000);
    expect(send(a, b.hostId, large)).toBe(true);
    expect(send(a, b.hostId, 'x'.repeat(1024 * 1024))).toBe(false);
    expect(send(a, 'others', 'last')).toBe(true);
    await expect.poll(() => received.length).toBe(2);
    expect(received.map(({ text }) => text === large || text)).toEqual([true, 'last']);
    expect(a.bus.figures.dropped).toBe(1);
  });

  it('sends events of sockets again, before later ones, if PostgreSQL may not have received them', async () => {
    const [a, b] = [await join(), await join()];
    const received: string[] = [];
    b.bus.on('sockets-opened', ({ sessionId }) => received.push(sessionId));
    b.bus.on('run-changed', ({ runId }) => received.push(runId));
    const original = PostgresSession.prototype.query;
    const query = vi.spyOn(PostgresSession.prototype, 'query');
    onTestFinished(() => query.mockRestore());
    let hasFailed = false;
    query.mockImplementation(function (this: PostgresSession, text, values = []) {
      const run = () => original.call(this, text, values) as ReturnType<typeof original>;
      if (hasFailed || !JSON.stringify(values).includes('first')) return run();
      hasFailed = true;
      a.bus.send(b.hostId, 'sockets-opened', { owner: 'did:a', sessionId: 'second' });
      return Promise.reject(new Error('Connection terminated'));
    });
    a.bus.send(b.hostId, 'sockets-opened', { owner: 'did:a', sessionId: 'first' });
    send(a, b.hostId, 'a hint');
    await expect.poll(() => received).toEqual(['first', 'second']);
    expect(a.bus.figures.dropped).toBe(1);
  });

  it('reconnects, reports that messages may be missed, and delivers again', async () => {
    const [a, b] = [await join(), await join()];
    let missed = 0;
    b.bus.onMissed(() => {
      missed += 1;
    });
    const removeListener = b.bus.onMissed(() => {
      missed += 100;
    });
    removeListener();
    expect(missed).toBe(0);
    for (const role of ['listener', 'notifier']) {
      expect(await terminateSessions(url, a.hostId, role)).toBe(1);
      expect(await terminateSessions(url, b.hostId, role)).toBe(1);
    }
    await expect.poll(() => missed).toBe(1);
    const received = collect(b);
    await expect
      .poll(() => {
        send(a, b.hostId, 'again');
        return received.length;
      })
      .toBeGreaterThan(0);
  });

  it('keeps the newest 16 MiB of messages while it is disconnected', async () => {
    const proxy = await startTcpProxy(url);
    try {
      const [a, b] = [await join(proxy.url), await join()];
      const received = collect(b);
      proxy.disconnect();
      await expect.poll(() => a.liveness.isAlive).toBe(false);
      const filling = 'x'.repeat(1_000_000);
      for (let i = 0; i < 30; i++) send(a, b.hostId, `${i} ${filling}`);
      expect(a.bus.figures.dropped).toBeGreaterThanOrEqual(14);
      proxy.reconnect();
      await expect.poll(() => received.at(-1)?.text.slice(0, 3)).toBe('29 ');
      expect(received.length).toBeLessThanOrEqual(16);
    } finally {
      await proxy.close();
    }
  });

  it('measures its lag, which rises while no messages arrive', async () => {
    const proxy = await startTcpProxy(url);
    try {
      const a = await join(proxy.url);
      await expect.poll(() => a.bus.figures.lagMs).toBeGreaterThan(0);
      proxy.mute();
      await expect.poll(() => a.bus.figures.lagMs, { interval: 500 }).toBeGreaterThan(4_000);
      proxy.unmute();
      await expect.poll(() => a.bus.figures.lagMs, { interval: 500 }).toBeLessThan(3_000);
      expect(a.liveness.isAlive).toBe(true);
    } finally {
      await proxy.close();
    }
  });

  it('ignores notifications of other programs', async () => {
    const [a, b] = [await join(), await join()];
    const received = collect(a);
    await runStatement(url, "notify sibyl_hosts, 'hello'");
    send(b, 'others', 'after');
    await expect.poll(() => received).toEqual([{ from: b.hostId, text: 'after' }]);
  });
});
