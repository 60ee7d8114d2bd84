import type { BlockWatch } from '../nodes/block-watch.js';
import type { ChainNode } from '../nodes/chain-node.js';
import type { NodePool } from '../nodes/node-pool.js';
import type { SchemaKeeper } from './schema-keeper.js';

/** Every so many rounds of asking for blocks, nodes are asked for their version. */
const ROUNDS = 10;

interface SchemaRefreshOptions {
  readonly pool: NodePool;
  readonly blocks: BlockWatch;
  readonly keeper: SchemaKeeper;
  readonly pollMs: number;
}

/** Has schemas learnt when a node comes up, and looked after from time to time: an upgrade restarts a node. */
export class SchemaRefresh {
  private timer: NodeJS.Timeout | undefined;
  private round = 0;

  constructor(private readonly options: SchemaRefreshOptions) {
    options.blocks.on('up', (node) => void options.keeper.refresh(node));
  }

  /** Settles once the nodes that answer were asked for the first time. */
  async start(): Promise<void> {
    const { pool, keeper, pollMs } = this.options;
    this.timer = setInterval(() => this.look(), pollMs);
    await Promise.all(pool.nodes.filter(isUp).map((node) => keeper.refresh(node)));
  }

  stop(): void {
    clearInterval(this.timer);
  }

  private look(): void {
    const { pool, keeper } = this.options;
    this.round += 1;
    const isDue = this.round % ROUNDS === 0;
    for (const node of pool.nodes.filter(isUp)) {
      if (isDue || !keeper.isKnown(node)) void keeper.refresh(node);
    }
  }
}

/** One set aside is looked at again: its address may lead to another node by now. */
const isUp = (node: ChainNode) => node.height > 0 && !node.breaker.isOpen;
