/** Reproducible random numbers: the same seed returns the same choices. */
export class Random {
  constructor(private state: number) {}

  /** A whole number from 0 up to but not including `end`. */
  below(end: number): number {
    // Mulberry32's steps: small, and even enough for choosing test cases.
    this.state = (this.state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % end;
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.below(choices.length)] as T;
  }

  list<T>(longest: number, make: () => T): T[] {
    return Array.from({ length: this.below(longest + 1) }, make);
  }
}
