import { randomUUID } from 'node:crypto';
import type { PluginDatabase } from '@sibyl/plugin-kit';
import { InboxWorker, type PluginTurns } from '@sibyl/plugin-kit/chat';
import { describe, expect, it } from 'vitest';
import { usePluginTables } from '../../../packages/host/test/support/plugin-tables.js';
import { engines } from '../../../packages/host/test/support/test-database.js';
import type { SlackMessage } from './delivery.js';
import { createInbox, toContinuation } from './inbox.js';
import { slack } from './index.js';
import { Threads } from './threads.js';

const LEASE_MS = 60_000;
let said = 0;

/** A host that knows which others are dead. */
const newHost = (dead: readonly string[] = []) => ({
  hostId: randomUUID(),
  findDead: async (ids: readonly string[]) => ids.filter((id) => dead.includes(id)),
});

function newMessage(more: Partial<SlackMessage> = {}): SlackMessage {
  said += 1;
  const place = { team: 'T1', user: 'U1', channel: 'C1', thread: '1.0' };
  return { eventId: `Ev${said}`, ts: `${said}.0`, text: 'hello', ...place, ...more };
}

describe.each(engines)('Inbox on %s', (engine) => {
  const test = usePluginTables(engine, slack);
  let now = 1_000_000;
  const clock = () => now;
  const open = (database = test.database) => createInbox({ database, clock, hosts: newHost() });

  it('Inbox.releaseDead releases what a dead host was answering at once, but nothing of a running one', async () => {
    const { database } = test;
    const [killed, running] = [newHost(), newHost()];
    const message = newMessage();
    const [taken, postponed] = [newMessage(), newMessage()];
    const dead = createInbox({ database, clock, hosts: killed });
    for (const each of [message, postponed]) await dead.accept(each);
    await dead.postpone(postponed, 1);
    await createInbox({ database, clock, hosts: running }).accept(taken);
    const inbox = createInbox({ database, clock, hosts: newHost([killed.hostId]) });
    await inbox.releaseDead();
    expect(await inbox.takeOver(10)).toEqual([{ message, replies: [], attempts: 2 }]);
    expect(await inbox.takeOver(10)).toEqual([]);
    for (const each of [message, taken, postponed]) await inbox.finish(each);
  });

  it('Inbox.postpone and Inbox.release change nothing of a message that another host has taken over', async () => {
    const { database } = test;
    const lost = newHost();
    const message = newMessage();
    const before = createInbox({ database, clock, hosts: lost });
    await before.accept(message);
    const inbox = createInbox({ database, clock, hosts: newHost([lost.hostId]) });
    await inbox.releaseDead();
    expect(await inbox.takeOver(10)).toMatchObject([{ message }]);
    // It was disconnected, and returns while the other host answers.
    await before.postpone(message, 1);
    await before.postpone(message, 8);
    await before.release(message);
    expect(await inbox.isWaiting(message)).toBe(true);
    now += LEASE_MS - 1;
    await inbox.renew([message]);
    now += LEASE_MS - 1;
    expect(await open().takeOver(10)).toEqual([]);
    await inbox.finish(message);
  });

  it('Inbox.accept accepts a message once, by its event and by itself, across processes', async () => {
    const inboxes = [open(), open(await test.another())];
    const message = newMessage();
    const deliveries = [message, { ...message, eventId: 'EvOther' }];
    const accepted = await Promise.all(
      inboxes.flatMap((inbox) => deliveries.map((one) => inbox.accept(one))),
    );
    expect(accepted.filter(Boolean)).toHaveLength(1);
    await Promise.all(inboxes.map((inbox) => inbox.finish(message)));
    await Promise.all(inboxes.map((inbox) => inbox.finish({ ...message, eventId: 'EvOther' })));
  });

  it('Inbox.takeOver gives abandoned messages to one process, with the partial answer', async () => {
    const message = newMessage();
    const dead = open();
    await dead.accept(message);
    await dead.saveReplies(message, ['9.1', '9.2']);
    const alive = [open(), open(await test.another())] as const;
    expect(await alive[0].takeOver(100)).toEqual([]);
    now += LEASE_MS + 1;
    const taken = await Promise.all(alive.map((inbox) => inbox.takeOver(100)));
    expect(taken.flat()).toEqual([{ message, replies: ['9.1', '9.2'], attempts: 2 }]);
    await alive[0].finish(message);
    now += LEASE_MS + 1;
    expect(await alive[0].takeOver(100)).toEqual([]);
  });

  it('Inbox.takeOver leaves the messages of a live process', async () => {
    const message = newMessage();
    const inbox = open();
    await inbox.accept(message);
    now += LEASE_MS - 1;
    await inbox.renew([message]);
    now += LEASE_MS - 1;
    expect(await open().takeOver(100)).toEqual([]);
    await inbox.finish(message);
  });

  it('Inbox.postpone waits longer each time, and stops after eight attempts', async () => {
    const message = newMessage();
    const inbox = open();
    await inbox.accept(message);
    for (let attempts = 1; attempts < 8; attempts++) {
      await inbox.postpone(message, attempts);
      now += 5_000 * 3 ** attempts;
      expect(await inbox.takeOver(100)).toEqual([]);
      now += 1;
      expect(await inbox.takeOver(100)).toMatchObject([{ attempts: attempts + 1 }]);
    }
    await inbox.postpone(message, 8);
    now += 24 * 60 * 60 * 1000;
    expect(await inbox.takeOver(100)).toEqual([]);
  });

  it('Inbox.takeOver takes no more than asked for, the oldest first, and what Inbox.release gave back', async () => {
    const messages = [newMessage(), newMessage(), newMessage()];
    const inbox = open();
    for (const message of messages) {
      await inbox.accept(message);
      await inbox.release(message);
      now += 1;
    }
    const second = open(await test.another());
    const taken = await Promise.all([inbox.takeOver(1), second.takeOver(1), inbox.takeOver(1)]);
    const rest = await inbox.takeOver(3);
    const all = [...taken.flat(), ...rest];
    expect(all.map(({ message }) => message.eventId).sort()).toEqual(
      messages.map(({ eventId }) => eventId).sort(),
    );
    // Being given back is not an attempt.
    expect(all.map(({ attempts }) => attempts)).toEqual([1, 1, 1]);
    for (const message of messages) await inbox.finish(message);
  });

  it('Inbox.deleteOld deletes messages that Slack does not deliver again', async () => {
    const message = newMessage();
    const inbox = open();
    await inbox.accept(message);
    await inbox.finish(message);
    await inbox.deleteOld();
    expect(await inbox.accept(message)).toBe(false);
    now += 24 * 60 * 60 * 1000 + 1;
    await inbox.deleteOld();
    expect(await inbox.accept(message)).toBe(true);
    await inbox.finish(message);
  });
});

describe.each(engines)('InboxWorker on %s', (engine) => {
  const test = usePluginTables(engine, slack);
  let now = 1_000_000;
  let isDown = false;

  /** An inbox whose writes fail while the database is down, and a worker that lists what it has answered. */
  function open(waitFor = Promise.resolve(), hosts = newHost()) {
    const { database } = test;
    const write: PluginDatabase['write'] = (unit) =>
      isDown ? Promise.reject(new Error('the database restarts')) : database.write(unit);
    const inbox = createInbox({
      database: { ...database, write },
      clock: () => now,
      hosts,
    });
    const answered: string[] = [];
    const errors: string[] = [];
    const worker = new InboxWorker<SlackMessage>({
      inbox,
      answer: async ({ message }) => {
        await waitFor;
        await inbox.saveReplies(message, []);
        answered.push(message.eventId);
      },
      describe: ({ eventId }) => ({ eventId }),
      logger: { info: () => {}, warn: () => {}, error: (_, text) => errors.push(text) },
    });
    return { inbox, worker, answered, errors };
  }

  /** Runs rounds until leases from before have ended. */
  async function passLease(worker: InboxWorker<SlackMessage>): Promise<void> {
    const end = now + LEASE_MS;
    while (now <= end) {
      now += 10_000;
      await worker.runRound();
    }
  }

  it('InboxWorker.runRound answers a message whose answer failed together with the database', async () => {
    const { inbox, worker, answered, errors } = open();
    const message = newMessage();
    await inbox.accept(message);
    isDown = true;
    worker.start({ message, replies: [] });
    await expect.poll(() => errors).toEqual(['cannot write to the inbox']);
    isDown = false;
    await passLease(worker);
    await worker.close();
    expect(answered).toEqual([message.eventId]);
    expect(await inbox.isWaiting(message)).toBe(false);
  });

  it('InboxWorker.runRound answers a message that was stored for its process, but never started', async () => {
    const { inbox, worker, answered } = open();
    const message = newMessage();
    await inbox.accept(message);
    await passLease(worker);
    await worker.close();
    expect(answered).toEqual([message.eventId]);
  });

  it('InboxWorker asks for dead hosts in each round, and not whenever an answer makes room for the next', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    let asked = 0;
    const findDead = async () => {
      asked += 1;
      return [];
    };
    const { inbox, worker, answered } = open(promise, { ...newHost(), findDead });
    const messages = Array.from({ length: 103 }, () => newMessage());
    for (const message of messages) {
      await inbox.accept(message);
      worker.start({ message, replies: [] });
    }
    resolve();
    await expect.poll(() => answered.length).toBe(messages.length);
    expect(asked).toBe(0);
    await worker.runRound();
    expect(asked).toBe(1);
    await worker.close();
  });

  it('InboxWorker.runRound stops answering a message once eight hosts that tried to answer it were killed', async () => {
    const message = newMessage();
    const killed: string[] = [];
    const openNext = () => {
      const host = newHost(killed);
      killed.push(host.hostId);
      return open(Promise.resolve(), host);
    };
    await openNext().inbox.accept(message);
    for (let attempts = 2; attempts <= 8; attempts++) {
      const { inbox } = openNext();
      await inbox.releaseDead();
      expect(await inbox.takeOver(10)).toMatchObject([{ message, attempts }]);
    }
    const { inbox, worker, answered, errors } = openNext();
    await worker.runRound();
    await worker.close();
    expect(answered).toEqual([]);
    expect(errors).toEqual(['a message is not answered: each host that tried to was killed']);
    expect(await inbox.isWaiting(message)).toBe(false);
  });

  it('InboxWorker.runRound keeps a message while it is being answered', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const { inbox, worker, answered } = open(promise);
    const message = newMessage();
    await inbox.accept(message);
    worker.start({ message, replies: [] });
    await passLease(worker);
    expect(await open().inbox.takeOver(100)).toEqual([]);
    resolve();
    await worker.close();
    expect(answered).toEqual([message.eventId]);
  });
});

describe.each(engines)('InboxWorker.follow on %s', (engine) => {
  const test = usePluginTables(engine, slack);
  let now = 1_000_000;
  const answered: string[] = [];

  /** A process with turns: those that wait, and whom to call when one changes. */
  function open(database: PluginDatabase, paused: Set<string>) {
    const listeners = new Set<Parameters<PluginTurns['onTurn']>[0]>();
    const checked: number[] = [];
    const inbox = createInbox({ database, clock: () => now, hosts: newHost() });
    const worker = new InboxWorker<SlackMessage>({
      inbox,
      turns: {
        findPaused: async (runs) => {
          checked.push(runs.length);
          return runs.filter(({ runId }) => paused.has(runId));
        },
        onTurn: (listener) => {
          listeners.add(listener);
          return () => listeners.delete(listener);
        },
      },
      answer: async ({ message }) => void answered.push(message.eventId),
      describe: ({ eventId }) => ({ eventId }),
      logger: { info: () => {}, warn: () => {}, error: () => {} },
    });
    const change = (sessionId: string) => {
      for (const listener of listeners) listener({ owner: 'did:slack:T1:U1', sessionId });
    };
    return { inbox, worker, checked, change };
  }

  const newPaused = (runId: string) =>
    toContinuation(
      { team: 'T1', user: 'U1', channel: 'C1', sessionId: `session of ${runId}` },
      { runId, questions: [] },
    );

  it('answers a message at once when its turn continues, and not before', async () => {
    const runId = randomUUID();
    const paused = new Set([runId]);
    const { worker, checked, change, inbox } = open(test.database, paused);
    const message = newPaused(runId);
    await worker.follow(message);
    await worker.follow(message);
    change(`session of ${runId}`);
    await worker.runRound();
    await expect.poll(() => checked.length).toBeGreaterThanOrEqual(4);
    expect(answered).not.toContain(message.eventId);
    paused.clear();
    change('another session');
    change(`session of ${runId}`);
    await expect.poll(() => answered).toContain(message.eventId);
    await expect.poll(() => inbox.isWaiting(message)).toBe(false);
    change(`session of ${runId}`);
    await worker.close();
    expect(answered.filter((id) => id === message.eventId)).toHaveLength(1);
  });

  it('answers once what continued unnoticed, by one of several processes, with one query for all', async () => {
    const paused = new Set(['run-2', 'run-3', 'run-4']);
    const dead = open(test.database, paused);
    for (const run of paused) await dead.worker.follow(newPaused(run));
    await dead.worker.close();
    paused.delete('run-2');
    const alive = [open(test.database, paused), open(await test.another(), paused)];
    await Promise.all(alive.map(({ worker }) => worker.runRound()));
    await expect.poll(() => answered).toContain('after run-2');
    // Known from the first round.
    paused.delete('run-3');
    for (const { change } of alive) change('session of run-3');
    await expect.poll(() => answered).toContain('after run-3');
    paused.delete('run-4');
    now += 2 * LEASE_MS;
    for (const { checked } of alive) checked.splice(0);
    await Promise.all(alive.map(({ worker }) => worker.runRound()));
    await expect.poll(() => answered).toContain('after run-4');
    await Promise.all(alive.map(({ worker }) => worker.runRound()));
    expect(alive.flatMap(({ checked }) => checked).length).toBeLessThanOrEqual(2);
    await Promise.all(alive.map(({ worker }) => worker.close()));
    for (const run of ['run-2', 'run-3', 'run-4'])
      expect(answered.filter((id) => id === `after ${run}`)).toHaveLength(1);
  });
});

describe.each(engines)('Threads on %s', (engine) => {
  const test = usePluginTables(engine, slack);
  const opened: string[] = [];
  const openThreads = (database = test.database) =>
    new Threads({
      database,
      turns: {
        openSession: async (user) => ({ sessionId: `${user}/${opened.push(user)}` }),
      },
    });

  it('Threads.openSession opens one session per user and thread, also for concurrent messages', async () => {
    const second = openThreads(await test.another());
    const message = newMessage();
    const sessions = await Promise.all(
      [openThreads(), second, second].map((threads) => threads.openSession(message)),
    );
    expect(new Set(sessions).size).toBe(1);
    expect(sessions[0]).toMatch(/^T1:U1\//);
    const elsewhere = [
      newMessage({ user: 'U2' }),
      newMessage({ channel: 'C2' }),
      newMessage({ thread: '2.0' }),
      newMessage({ team: 'T2' }),
    ];
    const others = await Promise.all(elsewhere.map((other) => second.openSession(other)));
    expect(new Set([...others, ...sessions]).size).toBe(5);
  });

  it('Threads.remove makes Threads.openSession open another session', async () => {
    const threads = openThreads();
    const { thread: _, ...message } = newMessage({ channel: 'D1' });
    const gone = await threads.openSession(message);
    await threads.remove(message, 'some other');
    expect(await threads.openSession(message)).toBe(gone);
    await threads.remove(message, gone);
    expect(await threads.openSession(message)).not.toBe(gone);
  });
});
