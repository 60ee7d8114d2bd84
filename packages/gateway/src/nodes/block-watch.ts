import { EventEmitter } from 'node:events';
import type { ChainNode } from './chain-node.js';
import type { NodePool } from './node-pool.js';

const POLL_TIMEOUT_MS = 3000;

interface BlockWatchEvents {
  /** The latest height is another one. */
  block: [height: number];
  /** A node answers after it did not, or for the first time. */
  up: [node: ChainNode];
  /** A node that answered does not any more. */
  down: [node: ChainNode];
}

/** Asks every node again and again how far it is, and tells of new blocks. */
export class BlockWatch extends EventEmitter<BlockWatchEvents> {
  private readonly timers = new Map<ChainNode, NodeJS.Timeout>();
  private readonly reportedUp = new Set<ChainNode>();
  private reportedHeight = 0;
  private isStopped = false;

  constructor(
    private readonly pool: NodePool,
    private readonly pollMs: number,
  ) {
    super();
    this.setMaxListeners(0);
  }

  /** Settles once every node was asked for the first time. */
  async start(): Promise<void> {
    await Promise.all(this.pool.nodes.map((node) => this.poll(node)));
  }

  stop(): void {
    this.isStopped = true;
    for (const timer of this.timers.values()) clearTimeout(timer);
  }

  /** A reply may tell of a block before the next round does. */
  notice(): void {
    const { latest } = this.pool;
    if (latest === this.reportedHeight || latest === 0) return;
    this.reportedHeight = latest;
    this.emit('block', latest);
    this.pollLagging(latest);
  }

  private async poll(node: ChainNode): Promise<void> {
    clearTimeout(this.timers.get(node));
    await node.poll(POLL_TIMEOUT_MS);
    if (this.isStopped) return;
    this.timers.set(
      node,
      setTimeout(() => void this.poll(node), this.pollMs),
    );
    this.reportState(node);
    this.notice();
  }

  /** Compares with the last report, since a failing query may have changed the state in between. */
  private reportState(node: ChainNode): void {
    if (node.isUp === this.reportedUp.has(node)) return;
    if (node.isUp) this.reportedUp.add(node);
    else this.reportedUp.delete(node);
    this.emit(node.isUp ? 'up' : 'down', node);
  }

  /** The others have the new block any moment, too soon for the next round to be the way to learn it. */
  private pollLagging(latest: number): void {
    for (const [node, timer] of this.timers) {
      if (!node.isUp || node.height >= latest) continue;
      clearTimeout(timer);
      this.timers.set(
        node,
        setTimeout(() => void this.poll(node), Math.min(50, this.pollMs)),
      );
    }
  }
}
