import type { DiskSpace } from '../disk-space.js';
import type { Database } from './database.js';

/** What every store works with. */
export interface StoreContext {
  readonly database: Database;
  /** The current time in milliseconds. */
  readonly clock: () => number;
  readonly newId: () => string;
  /** Unset where the database keeps its files elsewhere. */
  readonly disk?: DiskSpace | undefined;
}
