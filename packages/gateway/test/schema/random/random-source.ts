/** Random numbers that repeat for the same seed, so that a failure can be reproduced. */
export class RandomSource {
  private state: number;

  constructor(seed: number) {
    this.state = seed;
  }

  /** From 0 to `limit`, exclusive. */
  below(limit: number): number {
    this.state = (this.state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % limit;
  }

  happens(oneIn: number): boolean {
    return this.below(oneIn) === 0;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)] as T;
  }

  bytes(length: number): number[] {
    return Array.from({ length }, () => this.below(256));
  }

  /** Up to 64 bits; small numbers are as likely as large ones. */
  bits(): bigint {
    const high = BigInt(this.below(2 ** 32));
    const low = BigInt(this.below(2 ** 32));
    return ((high << 32n) | low) >> BigInt(this.below(65));
  }

  shuffle<T>(items: T[]): T[] {
    for (let i = items.length - 1; i > 0; i -= 1) {
      const j = this.below(i + 1);
      [items[i], items[j]] = [items[j] as T, items[i] as T];
    }
    return items;
  }
}
