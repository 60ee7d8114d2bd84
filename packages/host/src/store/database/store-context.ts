import type { Database } from './database.js';

/** What every store works with. */
export interface StoreContext {
  readonly database: Database;
  /** The current time in milliseconds. */
  readonly clock: () => number;
  readonly newId: () => string;
}
