import { LruMap, textBytes } from '@sibyl/server-kit';

const MAX_BYTES = 4 * 1024 * 1024;

/** Summaries by the hash of what they sum up; shared by the turns of all sessions. */
export class SummaryCache extends LruMap<string, string> {
  constructor(maxBytes = MAX_BYTES) {
    super({ maxBytes, sizeOf: (summary, hash) => textBytes(summary) + textBytes(hash) });
  }
}
