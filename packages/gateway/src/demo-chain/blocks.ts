/** The blocks of a chain: which is the latest, how far back they are kept, when each was made. */
export interface Blocks {
  readonly latest: number;
  readonly earliest: number;
  timeOf(height: number): Date;
}

export interface BlockPace {
  readonly everyMs: number;
  /** How many blocks there are when the chain starts. */
  readonly past: number;
  /** Older blocks than this many are pruned. */
  readonly kept: number;
}

/** Makes a block at a steady pace from now on; what came before is told from the same pace. */
export function startBlocks({ everyMs, past, kept }: BlockPace): Blocks {
  const genesis = Date.now() - past * everyMs;
  // Heights only rise, whatever happens to the time of day.
  const startedAt = performance.now();
  const latest = () => past + Math.floor((performance.now() - startedAt) / everyMs);
  return {
    get latest() {
      return latest();
    },
    get earliest() {
      return Math.max(1, latest() - kept + 1);
    },
    timeOf: (height) => new Date(genesis + height * everyMs),
  };
}
