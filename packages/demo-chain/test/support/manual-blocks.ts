import type { Blocks } from '../../src/queries/service.js';

const GENESIS = Date.parse('2025-01-01T00:00:00Z');

/** Blocks under the control of a test. */
export class ManualBlocks implements Blocks {
  earliest = 1;
  /** Called with the height of each new block. */
  readonly listeners = new Set<(height: number) => void>();

  constructor(private height = 100) {}

  get latest(): number {
    return this.height;
  }

  set latest(height: number) {
    this.height = height;
    for (const listener of this.listeners) listener(height);
  }

  getTime(height: number): Date {
    return new Date(GENESIS + height * 5000);
  }
}
