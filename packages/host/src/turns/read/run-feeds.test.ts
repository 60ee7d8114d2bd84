import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import {
  type HostBus,
  type HostTopic,
  MessageListeners,
  type WireFrame,
} from '../../bus/host-bus.js';
import type { Frame } from '../../store/runs/frames.js';
import type { Run } from '../../store/runs/run.js';
import { FeedSender, RunFeeds } from './run-feeds.js';

const logger = pino({ level: 'silent' });
const never = new AbortController().signal;

interface Sent {
  readonly to: string;
  readonly topic: HostTopic;
  readonly payload: unknown;
}

/** A bus that remembers what is sent, refuses messages with too many characters, and receives what a test says. */
function createBus(maxLength = Number.POSITIVE_INFINITY) {
  const sent: Sent[] = [];
  const listeners = new MessageListeners(logger);
  const missed: (() => void)[] = [];
  const bus: HostBus = {
    hostId: 'here',
    isShared: true,
    send: (to, topic, payload) => {
      if (JSON.stringify(payload).length > maxLength) return false;
      sent.push({ to, topic, payload });
      return true;
    },
    room: async () => {},
    on: (topic, listener) => listeners.add(topic, listener),
    onMissed: (listener) => {
      missed.push(listener);
      return () => {};
    },
    figures: { sent: 0, received: 0, dropped: 0, batches: 0, bytes: 0, lagMs: 0 },
  };
  return {
    bus,
    sent,
    watch: (runId: string, from: string) => listeners.call('run-watch', { runId }, from),
    receive: (runId: string, ...frames: WireFrame[]) =>
      listeners.call('run-frames', { runId, frames }, 'there'),
    change: (runId: string) => listeners.call('run-changed', { owner: '', runId }, 'there'),
    miss: () => {
      for (const listener of missed) listener();
    },
  };
}

const frame = (seq: number, data = `${seq}`): Frame => ({ seq, event: 'message', data });
const wire = (seq: number, data = `${seq}`): WireFrame => [seq, 'message', data];
const framesMessage = (to: string, runId: string, ...frames: WireFrame[]): Sent => ({
  to,
  topic: 'run-frames',
  payload: { runId, frames },
});

/** The timers that run between two ticks are real: frames of one tick are sent together. */
const nextTick = () => new Promise<void>((resolve) => setImmediate(resolve));

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

describe('FeedSender', () => {
  function createSender(maxLength?: number) {
    const test = createBus(maxLength);
    return { ...test, sender: new FeedSender(test.bus, (runId) => runId !== 'unknown') };
  }

  it('sends nothing about runs that no host watches', async () => {
    const { sender, sent, watch } = createSender();
    watch('other', 'b');
    sender.send('run', frame(1));
    await nextTick();
    expect(sent).toEqual([]);
  });

  it('cannot be asked for a run that this host does not have', async () => {
    const { sender, sent, watch } = createSender();
    watch('unknown', 'b');
    sender.send('unknown', frame(1));
    await nextTick();
    expect(sent).toEqual([]);
  });

  it('sends the frames of one tick together, to every host that watches the run', async () => {
    const { sender, sent, watch } = createSender();
    watch('run', 'b');
    watch('run', 'c');
    watch('second', 'c');
    sender.send('run', frame(1));
    sender.send('second', frame(7));
    sender.send('run', frame(2));
    expect(sent).toEqual([]);
    await nextTick();
    expect(sent).toEqual([
      framesMessage('b', 'run', wire(1), wire(2)),
      framesMessage('c', 'run', wire(1), wire(2)),
      framesMessage('c', 'second', wire(7)),
    ]);
    sender.send('run', frame(3));
    await nextTick();
    expect(sent.slice(3)).toEqual([
      framesMessage('b', 'run', wire(3)),
      framesMessage('c', 'run', wire(3)),
    ]);
  });

  it('stops sending to a host that has not asked again for 20 s', async () => {
    const { sender, sent, watch } = createSender();
    watch('run', 'b');
    vi.advanceTimersByTime(10_000);
    watch('run', 'c');
    vi.advanceTimersByTime(10_000);
    sender.send('run', frame(1));
    await nextTick();
    expect(sent.map(({ to }) => to)).toEqual(['b', 'c']);
    vi.advanceTimersByTime(1);
    sender.send('run', frame(2));
    await nextTick();
    expect(sent.slice(2).map(({ to }) => to)).toEqual(['c']);
    watch('run', 'b');
    vi.advanceTimersByTime(10_000);
    sender.send('run', frame(3));
    await nextTick();
    expect(sent.slice(3).map(({ to }) => to)).toEqual(['b']);
  });

  it('sends the last frames of a run that ends, and nothing after them', async () => {
    const { sender, sent, watch } = createSender();
    watch('run', 'b');
    sender.send('run', frame(1));
    sender.forget('run');
    await nextTick();
    expect(sent).toEqual([framesMessage('b', 'run', wire(1))]);
    await nextTick();
    sender.send('run', frame(2));
    await nextTick();
    expect(sent).toHaveLength(1);
  });

  it('forgets at once who watches a run without unsent frames', async () => {
    const { sender, sent, watch } = createSender();
    watch('run', 'b');
    sender.forget('run');
    sender.send('run', frame(1));
    await nextTick();
    expect(sent).toEqual([]);
  });

  it('splits frames that are too large for one message, in their order', async () => {
    const { sender, sent, watch } = createSender(90);
    watch('run', 'b');
    for (const seq of [1, 2, 3]) sender.send('run', frame(seq, 'x'.repeat(15)));
    await nextTick();
    const data = 'x'.repeat(15);
    expect(sent).toEqual([
      framesMessage('b', 'run', wire(1, data), wire(2, data)),
      framesMessage('b', 'run', wire(3, data)),
    ]);
  });

  it('announces a frame that is too large for any message, and sends those around it', async () => {
    const { sender, sent, watch } = createSender(100);
    watch('run', 'b');
    sender.send('run', frame(1));
    sender.send('run', frame(2, 'x'.repeat(200)));
    sender.send('run', frame(3));
    await nextTick();
    expect(sent).toEqual([
      framesMessage('b', 'run', wire(1)),
      { to: 'b', topic: 'run-changed', payload: { owner: '', runId: 'run' } },
      framesMessage('b', 'run', wire(3)),
    ]);
  });
});

describe('RunFeeds', () => {
  const run = { runId: 'run' } as Run;
  const SILENCE_MS = 1_000;

  function open() {
    const test = createBus();
    const feeds = new RunFeeds(test.bus);
    const reader = feeds.open(run);
    const next = (seen: number, signal = never) => reader.next(seen, SILENCE_MS, signal);
    return { ...test, feeds, reader, next };
  }

  it('gives the frames of a run to all its readers, and not to those of others', async () => {
    const { feeds, next, receive } = open();
    const second = feeds.open(run);
    const other = feeds.open({ ...run, runId: 'other' });
    receive('run', wire(1), wire(2));
    expect(await next(0)).toEqual([frame(1), frame(2)]);
    expect(await second.next(1, SILENCE_MS, never)).toEqual([frame(2)]);
    const silent = other.next(0, SILENCE_MS, never);
    await vi.advanceTimersByTimeAsync(SILENCE_MS);
    expect(await silent).toBe('silent');
  });

  it('wakes a reader that waits', async () => {
    const { next, receive } = open();
    const waiting = next(0);
    await nextTick();
    receive('run', wire(1));
    expect(await waiting).toEqual([frame(1)]);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('gives nothing to a reader that was closed, and still gives to the others', async () => {
    const { feeds, reader, next, receive } = open();
    const second = feeds.open(run);
    reader.close();
    receive('run', wire(1));
    expect(await second.next(0, SILENCE_MS, never)).toEqual([frame(1)]);
    const closed = next(0);
    await vi.advanceTimersByTimeAsync(SILENCE_MS);
    expect(await closed).toBe('silent');
    second.close();
    const third = feeds.open(run);
    // Closing twice must not remove the feed of those who came later.
    second.close();
    receive('run', wire(1));
    expect(await third.next(0, SILENCE_MS, never)).toEqual([frame(1)]);
  });

  it('makes the readers of a run read the store when it changed, once', async () => {
    const { feeds, next, change } = open();
    change('run');
    change('other');
    expect(await next(0)).toBe('changed');
    feeds.announce('run');
    expect(await next(0)).toBe('changed');
    feeds.announce('other');
    const silent = next(0);
    await vi.advanceTimersByTimeAsync(SILENCE_MS);
    expect(await silent).toBe('silent');
  });

  it('makes all readers read the store after the bus has missed messages', async () => {
    const { feeds, next, miss } = open();
    const other = feeds.open({ ...run, runId: 'other' });
    miss();
    expect(await next(0)).toBe('changed');
    expect(await other.next(0, SILENCE_MS, never)).toBe('changed');
  });

  it('returns the frames before it says that the store changed', async () => {
    const { next, receive, change } = open();
    change('run');
    receive('run', wire(1));
    expect(await next(0)).toEqual([frame(1)]);
    expect(await next(1)).toBe('changed');
  });

  it('skips frames that were read from the store', async () => {
    const { next, receive } = open();
    receive('run', wire(1), wire(2), wire(3));
    expect(await next(2)).toEqual([frame(3)]);
    receive('run', wire(1), wire(3));
    const silent = next(3);
    await vi.advanceTimersByTimeAsync(SILENCE_MS);
    expect(await silent).toBe('silent');
  });

  it('keeps frames beyond a gap, and gives the store a moment to contain those before them', async () => {
    const { next, receive } = open();
    receive('run', wire(1), wire(3), wire(4));
    expect(await next(0)).toEqual([frame(1)]);
    const reported = vi.fn();
    const gap = next(1).then(reported);
    await nextTick();
    expect(reported).not.toHaveBeenCalled();
    await gap;
    expect(reported).toHaveBeenCalledWith('changed');
    // The store had the second one.
    expect(await next(2)).toEqual([frame(3), frame(4)]);
  });

  it('is silent at once for a reader that leaves or has left', async () => {
    const { next } = open();
    const leave = new AbortController();
    const waiting = next(0, leave.signal);
    await nextTick();
    leave.abort();
    expect(await waiting).toBe('silent');
    expect(await next(0, leave.signal)).toBe('silent');
    expect(vi.getTimerCount()).toBe(0);
  });

  it('keeps at most 1,000 frames for a reader that does not read them; it then reads the store', async () => {
    const { next, receive } = open();
    const many = Array.from({ length: 1_000 }, (_, i) => wire(i + 1));
    receive('run', ...many);
    expect(await next(0)).toHaveLength(1_000);
    receive('run', ...many.map(([seq]) => wire(seq + 1_000)));
    receive('run', wire(2_001));
    expect(await next(1_000)).toBe('changed');
    receive('run', wire(2_002));
    expect(await next(2_001)).toEqual([frame(2_002)]);
  });

  it('keeps exactly 1 MiB of frames for a reader', async () => {
    const { next, receive } = open();
    const half = 'x'.repeat(512 * 1024);
    receive('run', wire(1, half), wire(2, half));
    expect(await next(0)).toHaveLength(2);
    receive('run', wire(3, half), wire(4, half), wire(5, 'x'));
    expect(await next(2)).toBe('changed');
  });
});

describe('FeedReader.watch', () => {
  const run = { runId: 'run' } as Run;
  const watchMessage = (to: string): Sent => ({
    to,
    topic: 'run-watch',
    payload: { runId: 'run' },
  });

  it('asks the host of the run, and again after 5 s', () => {
    const { bus, sent } = createBus();
    const reader = new RunFeeds(bus).open(run);
    reader.watch('b');
    vi.advanceTimersByTime(4_999);
    reader.watch('b');
    expect(sent).toEqual([watchMessage('b')]);
    vi.advanceTimersByTime(1);
    reader.watch('b');
    expect(sent).toEqual([watchMessage('b'), watchMessage('b')]);
  });

  it('asks again while frames arrive without a break, so that the host of the run continues to send', async () => {
    const { bus, sent, receive } = createBus();
    const reader = new RunFeeds(bus).open(run);
    reader.watch('there');
    for (let seq = 1; seq <= 21; seq++) {
      receive('run', wire(seq));
      expect(await reader.next(seq - 1, 1_000, never)).toEqual([frame(seq)]);
      vi.advanceTimersByTime(500);
    }
    expect(sent).toEqual(Array.from({ length: 3 }, () => watchMessage('there')));
  });

  it('asks another host at once, and none while the run has no host', () => {
    const { bus, sent } = createBus();
    const reader = new RunFeeds(bus).open(run);
    reader.watch(undefined);
    expect(sent).toEqual([]);
    reader.watch('b');
    reader.watch(undefined);
    reader.watch('c');
    expect(sent).toEqual([watchMessage('b'), watchMessage('c')]);
  });
});
