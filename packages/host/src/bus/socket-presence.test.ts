import { pino } from 'pino';
import { expect, it, onTestFinished } from 'vitest';
import { joinForTest, startMember, terminateSessions } from '../../test/support/cluster.js';
import { createTestDatabase } from '../../test/support/test-database.js';
import { openStore } from '../store/store.js';
import { SharedPresence, type SocketDirectory } from './socket-presence.js';

const key = { owner: 'did:key:alice', sessionId: 's1' };

async function start() {
  const { options, drop } = await createTestDatabase('postgres');
  onTestFinished(drop);
  const join = async () => {
    const { hostId, bus, liveness } = await joinForTest(options);
    const opened: string[] = [];
    bus.on('sockets-opened', (_key, from) => opened.push(from));
    const store = await openStore({ ...options, hostId });
    onTestFinished(() => store.close());
    const directory = store.sockets as SocketDirectory;
    const logger = pino({ level: 'silent' });
    return {
      hostId,
      directory,
      opened,
      announce: () => new SharedPresence({ directory, bus, liveness, logger }),
    };
  };
  return { options, join, url: options.databaseUrl ?? '' };
}

it('SharedPresence announces the sockets of a session until the last one closes', async () => {
  const { join } = await start();
  const [a, b] = [await join(), await join()];
  const presence = a.announce();
  await Promise.all([presence.open(key), presence.open(key)]);
  expect(await b.directory.findHosts(key)).toEqual([a.hostId]);
  expect(await a.directory.findHosts(key)).toEqual([]);
  expect(await b.directory.countElsewhere(key.owner)).toBe(2);
  presence.close(key);
  await expect.poll(() => b.directory.countElsewhere(key.owner)).toBe(1);
  presence.close(key);
  await expect.poll(() => b.directory.findHosts(key)).toEqual([]);
});

it('SharedPresence removes the sockets of hosts that end, and of those that ended before', async () => {
  const { join, options } = await start();
  const [a, b] = [await join(), await join()];
  const member = await startMember(options);
  const leftOver = async (hostId: string) => {
    const store = await openStore({ ...options, hostId });
    await store.sockets?.setCounts([{ ...key, sockets: 1 }]);
    await store.close();
  };
  await leftOver('ended before');
  await expect
    .poll(async () => {
      a.announce();
      return a.directory.findHosts(key);
    })
    .toEqual([]);
  await leftOver(member.hostId);
  expect(await b.directory.findHosts(key)).toEqual([member.hostId]);
  await member.kill();
  await expect.poll(() => b.directory.findHosts(key)).toEqual([]);
});

it('SharedPresence announces its sockets again after it was considered ended', async () => {
  const { join, url } = await start();
  const [a, b] = [await join(), await join()];
  await a.announce().open(key);
  await expect.poll(() => b.opened).toEqual([a.hostId]);
  await b.directory.removeHost(a.hostId);
  expect(await b.directory.findHosts(key)).toEqual([]);
  await terminateSessions(url, a.hostId);
  await expect.poll(() => b.directory.findHosts(key)).toEqual([a.hostId]);
  // Otherwise events until they look again would not be sent here.
  await expect.poll(() => b.opened).toEqual([a.hostId, a.hostId]);
});
