import type { Blocks } from '../../src/queries/service.js';

const GENESIS = Date.parse('2025-01-01T00:00:00Z');

/** Blocks under the control of a test. */
export class ManualBlocks implements Blocks {
  earliest = 1;

  constructor(public latest = 100) {}

  getTime(height: number): Date {
    return new Date(GENESIS + height * 5000);
  }
}
