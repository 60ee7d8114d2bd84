import { setTimeout as sleep } from 'node:timers/promises';
import { ChangeSignal, Listeners } from '@sibyl/server-kit';
import type { HostBus, WireFrame } from '../../bus/host-bus.js';
import type { Frame } from '../../store/runs/frames.js';
import type { Run } from '../../store/runs/run.js';

/** How often a host repeats that it watches a run, and after how long without it the run's host stops sending. */
const WATCH_MS = 5_000;
const WATCH_EXPIRY_MS = 20_000;

/** Frames that wait for one reader, and their characters; beyond it, the reader reads the store. */
const MAX_WAITING = 1_000;
const MAX_WAITING_LENGTH = 1024 * 1024;

/** How long a reader that misses frames waits before it looks for them in the store, which has them after the next flush. */
const STORE_MS = 50;

/** Sends the frames of this host's runs to the hosts that watch them. */
export class FeedSender {
  /** By run: the watching hosts, and when each stops to watch. */
  private readonly watchers = new Map<string, Map<string, number>>();
  private unsent = new Map<string, Frame[]>();
  /** Runs that were canceled and have not ended. */
  private readonly ending = new Set<string>();

  constructor(
    private readonly bus: HostBus,
    /** Whether this host has the run: others cannot be watched here. */
    private readonly hasRun: (runId: string) => boolean,
  ) {
    bus.on('run-watch', ({ runId }, from) => this.watch(runId, from));
  }

  /** Sends a frame with others of the same tick. */
  send(runId: string, frame: Frame): void {
    if (!this.watchers.has(runId)) return;
    const frames = this.unsent.get(runId);
    if (frames) return void frames.push(frame);
    if (this.unsent.size === 0) setImmediate(() => this.sendAll());
    this.unsent.set(runId, [frame]);
  }

  /** Informs the hosts that watch a run that it was canceled. */
  announceEnd(runId: string): void {
    this.ending.add(runId);
    for (const hostId of this.watchers.get(runId)?.keys() ?? [])
      this.bus.send(hostId, 'run-ending', { runId });
  }

  /** The run has ended, or another host has it. */
  forget(runId: string): void {
    this.ending.delete(runId);
    if (this.unsent.has(runId)) setImmediate(() => this.watchers.delete(runId));
    else this.watchers.delete(runId);
  }

  private watch(runId: string, hostId: string): void {
    if (!this.hasRun(runId)) return;
    const hosts = this.watchers.get(runId) ?? new Map<string, number>();
    this.watchers.set(runId, hosts.set(hostId, performance.now() + WATCH_EXPIRY_MS));
    if (this.ending.has(runId)) this.bus.send(hostId, 'run-ending', { runId });
  }

  private sendAll(): void {
    const unsent = this.unsent;
    this.unsent = new Map();
    for (const [runId, frames] of unsent) this.sendTo(runId, frames);
  }

  private sendTo(runId: string, frames: readonly Frame[]): void {
    const now = performance.now();
    const hosts = this.watchers.get(runId) ?? new Map<string, number>();
    const wire = frames.map(({ seq, event, data }): WireFrame => [seq, event, data]);
    for (const [hostId, expiry] of hosts) {
      if (expiry < now) hosts.delete(hostId);
      else this.sendFrames(hostId, runId, wire);
    }
    if (hosts.size === 0) this.watchers.delete(runId);
  }

  /** Frames that are too large for a message are announced: readers find them in the store. */
  private sendFrames(hostId: string, runId: string, frames: readonly WireFrame[]): void {
    if (this.bus.send(hostId, 'run-frames', { runId, frames })) return;
    const half = Math.ceil(frames.length / 2);
    if (frames.length === 1) return void this.bus.send(hostId, 'run-changed', { owner: '', runId });
    this.sendFrames(hostId, runId, frames.slice(0, half));
    this.sendFrames(hostId, runId, frames.slice(half));
  }
}

/** What another host sends about a run. */
type FeedNews = readonly Frame[] | 'changed' | 'ending';

/** What a reader of another host's run receives next: frames, or a reason to read the store. */
export type FeedEvent = readonly Frame[] | 'changed' | 'silent';

/** The runs of other hosts that this host has readers for. */
export class RunFeeds {
  /** By run. */
  private readonly readers = new Listeners<string, FeedNews>();

  constructor(private readonly bus: HostBus) {
    bus.on('run-frames', ({ runId, frames }) =>
      this.readers.call(
        runId,
        frames.map(([seq, event, data]) => ({ seq, event, data })),
      ),
    );
    bus.on('run-changed', ({ runId }) => this.announce(runId));
    bus.on('run-ending', ({ runId }) => this.readers.call(runId, 'ending'));
    bus.onMissed(() => {
      for (const runId of this.readers.list()) this.announce(runId);
    });
  }

  /** Makes the readers of a run on this host read the store. */
  announce(runId: string): void {
    this.readers.call(runId, 'changed');
  }

  open(run: Run): FeedReader {
    const reader: FeedReader = new FeedReader(run.runId, this.bus, () => stop());
    const stop = this.readers.add(run.runId, (news) => reader.push(news));
    return reader;
  }
}

/** Follows a run of another host; subscribe before reading the store, so that nothing is missed in between. */
export class FeedReader {
  /** Whether the host of the run has said that it was canceled. */
  isEnding = false;
  private waiting: Frame[] = [];
  /** The characters of the waiting frames. */
  private waitingLength = 0;
  private isChanged = false;
  private readonly arrived = new ChangeSignal();
  private hostId: string | undefined;
  private watchedAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly runId: string,
    private readonly bus: HostBus,
    readonly close: () => void,
  ) {}

  /** Asks the host of the run for its frames, again if it has changed or after a while. */
  watch(hostId: string | undefined): void {
    const now = performance.now();
    if (hostId === this.hostId && now - this.watchedAt < WATCH_MS) return;
    this.hostId = hostId;
    this.watchedAt = now;
    if (hostId !== undefined) this.bus.send(hostId, 'run-watch', { runId: this.runId });
  }

  push(news: FeedNews): void {
    if (news === 'ending') {
      this.isEnding = true;
      return;
    }
    if (news === 'changed') this.isChanged = true;
    else {
      this.waiting.push(...news);
      this.waitingLength += countLength(news);
    }
    if (this.waiting.length > MAX_WAITING || this.waitingLength > MAX_WAITING_LENGTH) {
      this.keep([]);
      this.isChanged = true;
    }
    this.arrived.notify();
  }

  /** The next frames after `seen`, without a gap; otherwise why the store has to be read. */
  async next(seen: number, silenceMs: number, signal: AbortSignal): Promise<FeedEvent> {
    for (;;) {
      // A run that never pauses for long is not read from the store.
      this.watch(this.hostId);
      const frames = this.takeAfter(seen);
      if (frames.length > 0) return frames;
      if (this.waiting.length > 0) await this.waitForStore(signal);
      if (this.waiting.length > 0 || this.isChanged) {
        this.isChanged = false;
        return 'changed';
      }
      if (!(await this.arrived.wait({ ms: silenceMs, signal }))) return 'silent';
    }
  }

  /** Frames beyond a gap stay: those before them are on their way to the store. */
  private takeAfter(seen: number): readonly Frame[] {
    const fresh = this.waiting.filter(({ seq }) => seq > seen);
    const gap = fresh.findIndex(({ seq }, i) => seq !== seen + 1 + i);
    const count = gap === -1 ? fresh.length : gap;
    this.keep(fresh.slice(count));
    return fresh.slice(0, count);
  }

  private keep(frames: Frame[]): void {
    this.waiting = frames;
    this.waitingLength = countLength(frames);
  }

  private async waitForStore(signal: AbortSignal): Promise<void> {
    await sleep(STORE_MS, undefined, { signal }).catch(() => undefined);
  }
}

const countLength = (frames: readonly Frame[]): number =>
  frames.reduce((sum, { data }) => sum + data.length, 0);
