import { EventEmitter } from 'node:events';
import type { ChainNode } from './chain-node.js';
import type { NodePool } from './node-pool.js';

const POLL_TIMEOUT_MS = 3000;

interface BlockWatchEvents {
  /** The latest height has changed. */
  block: [height: number];
  /** A node has become available. */
  up: [node: ChainNode];
  /** A node has become unavailable. */
  down: [node: ChainNode];
}

/** Polls the height of every node and reports new blocks. */
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

  /** Resolves after the first poll of every node. */
  async start(): Promise<void> {
    await Promise.all(this.pool.nodes.map((node) => this.poll(node)));
  }

  stop(): void {
    this.isStopped = true;
    for (const timer of this.timers.values()) clearTimeout(timer);
  }

  /** Reports a new block; a reply may show it before the next poll. */
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

  /** Compares with the last report, since a failed query may have changed the state. */
  private reportState(node: ChainNode): void {
    if (node.isUp === this.reportedUp.has(node)) return;
    if (node.isUp) this.reportedUp.add(node);
    else this.reportedUp.delete(node);
    this.emit(node.isUp ? 'up' : 'down', node);
  }

  /** The other nodes get the new block soon, so they are polled before the next round. */
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
