import { pino } from 'pino';
import { expect, it, onTestFinished, vi } from 'vitest';
import { ClusterEventBus } from './cluster-event-bus.js';
import { toServerEvent } from './event-bus.js';
import { type HostMessageListener, MemoryHostBus } from './host-bus.js';
import type { SocketDirectory } from './socket-presence.js';

const logger = pino({ level: 'silent' });
const key = { owner: 'did:a', sessionId: 's' };
const outage = new Error('Connection terminated');

/** What a host sends about a session whose sockets are found in this directory. */
function createBus(directory: Partial<SocketDirectory>) {
  const hosts = new MemoryHostBus('own', logger);
  const send = vi.spyOn(hosts, 'send');
  const missed = new Set<() => void>();
  vi.spyOn(hosts, 'onMissed').mockImplementation((listener: () => void = () => {}) => {
    missed.add(listener);
    return () => missed.delete(listener);
  });
  const opened: HostMessageListener<'sockets-opened'>[] = [];
  vi.spyOn(hosts, 'on').mockImplementation((topic, listener) => {
    if (topic === 'sockets-opened') opened.push(listener as HostMessageListener<'sockets-opened'>);
    return () => {};
  });
  let lose: (hostId: string) => void = () => {};
  const onHostLost = (listener: (hostId: string) => void) => {
    lose = listener;
    return () => {};
  };
  const deps = {
    directory: directory as SocketDirectory,
    bus: hosts,
    liveness: { onHostLost },
    logger,
  };
  const bus = new ClusterEventBus({ ...deps, onRemoteCall: () => {}, isCallOpen: () => true });
  onTestFinished(() => bus.close());
  const miss = () => {
    for (const listener of missed) listener();
  };
  /** A socket of the session opens at another host. */
  const open = (hostId: string) => {
    for (const listener of opened) listener(key, hostId);
  };
  return { bus, send, miss, open, lose: (hostId: string) => lose(hostId) };
}

function createEvent(seq: number) {
  const data = { sessionId: 's', requestId: 'r', status: 'done' } as const;
  const event = toServerEvent({ event: 'message_cache_invalidation', data }, { turn: 1, seq });
  if (!event) throw new Error('not an event of sockets');
  return event;
}

it('ClusterEventBus.publish keeps events until the hosts of the session can be read', async () => {
  const findHosts = vi.fn(async () => ['other']).mockRejectedValueOnce(outage);
  const { bus, send } = createBus({ findHosts });
  const [first, second] = [createEvent(1), createEvent(2)];
  bus.publish(key, first);
  await expect.poll(() => findHosts.mock.settledResults.length).toBe(1);
  bus.publish(key, second);
  await expect.poll(() => send.mock.calls.length).toBe(2);
  expect(send.mock.calls).toEqual([
    ['other', 'socket-event', { ...key, event: first, after: null }],
    ['other', 'socket-event', { ...key, event: second, after: first.position }],
  ]);
});

it('ClusterEventBus sends the event also if no other follows', async () => {
  const findHosts = vi.fn(async () => ['other']).mockRejectedValueOnce(outage);
  const { bus, send } = createBus({ findHosts });
  bus.publish(key, createEvent(1));
  await expect.poll(() => send.mock.calls.length, { timeout: 10_000 }).toBe(1);
});

it('ClusterEventBus reports a gap to every socket if it cannot find out which ones missed events', async () => {
  const findTurnsElsewhere = async () => Promise.reject(outage);
  const { bus, miss } = createBus({ findTurnsElsewhere });
  const onGap = vi.fn();
  bus.subscribe(key, () => {}, onGap);
  miss();
  await expect.poll(() => onGap.mock.calls.length).toBe(1);
});

it('ClusterEventBus reports a gap for turns of a host that has ended, perhaps before it sent its last events', async () => {
  const other = { ...key, sessionId: 'other' };
  const findTurnsElsewhere = vi.fn(async () => [key]);
  const { bus, lose } = createBus({ findTurnsElsewhere });
  const [onGap, onOtherGap] = [vi.fn(), vi.fn()];
  bus.subscribe(key, () => {}, onGap);
  bus.subscribe(other, () => {}, onOtherGap);
  lose('ended');
  await expect.poll(() => onGap.mock.calls.length).toBe(1);
  expect(onOtherGap).not.toHaveBeenCalled();
  expect(findTurnsElsewhere.mock.calls).toEqual([[[key, other], 'ended']]);
});

it('ClusterEventBus sends a host that opens a socket what it published while turns continue without the database', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const { bus, send, open } = createBus({ findHosts: async () => [] });
  const event = createEvent(1);
  bus.publish(key, event);
  vi.advanceTimersByTime(12_000);
  open('other');
  await vi.waitFor(() =>
    expect(send.mock.calls).toEqual([['other', 'socket-event', { ...key, event, after: null }]]),
  );
});
