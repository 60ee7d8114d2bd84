import { RecentMap } from '../recent-map.js';

const CAPACITY = 500;

/** Summaries by the hash of what they sum up; shared by the turns of all sessions. */
export class SummaryCache extends RecentMap<string> {
  constructor(capacity = CAPACITY) {
    super(capacity);
  }
}
