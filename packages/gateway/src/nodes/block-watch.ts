import { EventEmitter } from 'node:events';
import type { ChainNode } from './chain-node.js';
import type { NodePool } from './node-pool.js';

/** Intervals that count. */
const KEPT = 16;
/** No block arrives before this share of the shortest interval; a smaller one while few intervals are known. */
const EARLIEST_SHARE = 0.75;
const FIRST_SHARE = 0.5;
const FEW = 8;
/** How long the first block after the start is expected at any time. */
const FIRST_BLOCK_MS = 10_000;
/** Polls begin at this share of the usual interval. */
const POLL_SHARE = 0.9;
/** Polls per interval while a block is due. */
const POLLS_PER_INTERVAL = 25;
const SHORTEST_POLL_MS = 20;
/** Interval between polls until the pace of the chain is known. */
const LEARNING_MS = 200;
/** A block that is late by this many intervals is not awaited with more polls than usual. */
const STALLED_INTERVALS = 3;
/** A block that is late by this many intervals is not expected at any moment. */
const OVERDUE_INTERVALS = 20;
/** A jump of more blocks says nothing about their pace, such as one after an outage. */
const MAX_JUMP = 10;

/** Learns the pace of a chain's blocks. Times are milliseconds of `performance.now()`. */
export class BlockClock {
  private readonly intervals: number[] = [];
  private height = 0;
  private arrivedAt = 0;
  /** The median interval. */
  private usual: number | undefined;
  /** Before this, the next block cannot arrive; it is in the past while the pace is unknown. */
  dueAt = 0;

  /** Records that a height was seen for the first time. */
  record(height: number, now: number): void {
    const blocks = height - this.height;
    if (this.height > 0 && blocks > 0 && blocks <= MAX_JUMP) {
      this.intervals.push((now - this.arrivedAt) / blocks);
      if (this.intervals.length > KEPT) this.intervals.shift();
    }
    if (blocks < 0) this.intervals.length = 0;
    this.height = height;
    this.arrivedAt = now;
    const sorted = this.intervals.toSorted((a, b) => a - b);
    this.usual = sorted[Math.floor(sorted.length / 2)];
    const share = sorted.length < FEW ? FIRST_SHARE : EARLIEST_SHARE;
    this.dueAt = now + share * (sorted[0] ?? 0);
  }

  /** Whether a block is due; none is while the chain has stalled. */
  isDue(now: number): boolean {
    const { usual } = this;
    const elapsed = now - this.arrivedAt;
    if (usual === undefined) return elapsed <= FIRST_BLOCK_MS;
    return now >= this.dueAt && elapsed <= OVERDUE_INTERVALS * usual;
  }

  /** The time to wait before the next poll: until the block is due, then often. */
  getPollDelay(now: number, longestMs: number): number {
    const { usual } = this;
    const elapsed = now - this.arrivedAt;
    if (usual === undefined) {
      return elapsed > FIRST_BLOCK_MS ? longestMs : Math.min(LEARNING_MS, longestMs);
    }
    if (elapsed > STALLED_INTERVALS * usual) return longestMs;
    const often = Math.max(SHORTEST_POLL_MS, usual / POLLS_PER_INTERVAL);
    return Math.min(longestMs, Math.max(often, POLL_SHARE * usual - elapsed));
  }
}

const POLL_TIMEOUT_MS = 3000;
/** Nodes that are behind get the new block soon, so they are polled before the next round. */
const LAGGING_POLL_MS = 50;
/** The age of a check that is new enough while a block is due: a client cannot have heard of a newer block. */
const DUE_AGE_MS = 1;
/** The same for a chain whose next block cannot be predicted. */
const USUAL_AGE_MS = 20;
/** A cached reply waits no longer for a check. */
const CHECK_TIMEOUT_MS = 100;

interface BlockWatchEvents {
  /** The latest height has changed. */
  block: [height: number];
  /** The height of a node fell: its chain was reset, or its address leads to another node. */
  reset: [node: ChainNode];
  /** A node has become available. */
  up: [node: ChainNode];
  /** A node has become unavailable. */
  down: [node: ChainNode];
  /** No more blocks are reported. */
  stop: [];
}

/** A reading of the nodes' heights. */
interface Check {
  readonly startedAt: number;
  readonly done: Promise<void>;
}

/** Reports new blocks: nodes push them, are polled when one is due, or show them in a reply. */
export class BlockWatch extends EventEmitter<BlockWatchEvents> {
  private readonly timers = new Map<ChainNode, NodeJS.Timeout>();
  /** Whether a node was up at the last report. */
  private readonly reported = new Map<ChainNode, boolean>();
  private readonly clock = new BlockClock();
  private readonly subscriptions: (() => void)[] = [];
  private reportedHeight = 0;
  /** Before this, no check is needed. */
  private nextCheckAt = 0;
  private checking: Check | undefined;
  private nextCheck: Promise<void> | undefined;
  private isStopped = false;

  constructor(
    private readonly pool: NodePool,
    private readonly pollMs: number,
  ) {
    super();
    this.setMaxListeners(0);
  }

  /** Resolves after the first poll of every node. */
  async start(): Promise<void> {
    for (const node of this.pool.nodes) {
      node.onReset = () => this.emit('reset', node);
      const stop = node.upstream.watchBlocks?.((height) => {
        node.raiseHeight(height);
        this.notice();
      });
      if (stop) this.subscriptions.push(stop);
    }
    await Promise.all(this.pool.nodes.map((node) => this.poll(node)));
  }

  stop(): void {
    this.isStopped = true;
    for (const timer of this.timers.values()) clearTimeout(timer);
    for (const stop of this.subscriptions) stop();
    this.emit('stop');
  }

  /** Reports a new block; a reply may show it before the next poll. */
  notice(): void {
    const { latest } = this.pool;
    if (latest === this.reportedHeight || latest === 0) return;
    this.reportedHeight = latest;
    this.clock.record(latest, performance.now());
    this.nextCheckAt = this.clock.dueAt;
    this.emit('block', latest);
    this.pollLagging(latest);
  }

  /**
   * Checks whether there is a new block, if one may have arrived since the last check. Undefined if there is nothing to
   * wait for: the latest height is up to date. Callers share checks.
   */
  confirm(): Promise<void> | undefined {
    const now = performance.now();
    return now < this.nextCheckAt ? undefined : this.check(now - this.getMaxAge(now));
  }

  /** Checks whether there is a new block, unless none can have arrived yet. */
  async checkIfDue(): Promise<void> {
    const now = performance.now();
    if (now >= this.clock.dueAt) await this.check(now);
  }

  /** Joins the check in progress, if it is new enough, or else the one after it. */
  private check(oldest: number): Promise<void> {
    const { checking } = this;
    if (!checking) return this.beginCheck();
    if (checking.startedAt >= oldest) return checking.done;
    this.nextCheck ??= checking.done.then(() => {
      this.nextCheck = undefined;
      return this.beginCheck();
    });
    return this.nextCheck;
  }

  private beginCheck(): Promise<void> {
    const startedAt = performance.now();
    const done = this.readHeights(startedAt);
    this.checking = { startedAt, done };
    return done;
  }

  private async readHeights(startedAt: number): Promise<void> {
    const nodes = this.pool.nodes.filter((node) => node.isUp && !this.pool.isLagging(node));
    await Promise.all(nodes.map((node) => node.readHeight(CHECK_TIMEOUT_MS)));
    this.checking = undefined;
    this.notice();
    this.nextCheckAt = Math.max(this.clock.dueAt, startedAt + this.getMaxAge(startedAt));
  }

  /** The age of a check that is new enough. */
  private getMaxAge(now: number): number {
    return this.clock.isDue(now) ? DUE_AGE_MS : USUAL_AGE_MS;
  }

  private async poll(node: ChainNode): Promise<void> {
    clearTimeout(this.timers.get(node));
    await node.poll(POLL_TIMEOUT_MS);
    if (this.isStopped) return;
    this.reportState(node);
    this.notice();
    this.schedule(node, this.clock.getPollDelay(performance.now(), this.pollMs));
  }

  private schedule(node: ChainNode, ms: number): void {
    clearTimeout(this.timers.get(node));
    this.timers.set(
      node,
      setTimeout(() => void this.poll(node), ms),
    );
  }

  /** Compares with the last report, since a failed query may have changed the state. */
  private reportState(node: ChainNode): void {
    if (node.isUp === this.reported.get(node)) return;
    this.reported.set(node, node.isUp);
    this.emit(node.isUp ? 'up' : 'down', node);
  }

  private pollLagging(latest: number): void {
    for (const node of this.timers.keys()) {
      if (!node.isUp || node.height >= latest) continue;
      this.schedule(node, Math.min(LAGGING_POLL_MS, this.pollMs));
    }
  }
}
