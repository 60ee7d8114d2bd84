import { textBytes } from '@sibyl/server-kit';

const HOUR_MS = 60 * 60 * 1000;

interface Count<Detail> {
  count: number;
  lastAt: number;
  detail: Detail;
}

/** What happened in about the last hour, by key. Keys that were not seen for longest make room for new ones. */
export class RecentCounts<Detail = undefined> {
  private readonly counts = new Map<string, Count<Detail>>();
  private bytes = 0;

  constructor(
    private readonly maxBytes: number,
    private readonly clock: () => number = Date.now,
  ) {}

  add(key: string, detail: Detail): void {
    const now = this.clock();
    const known = this.counts.get(key);
    const isRecent = known !== undefined && now - known.lastAt < HOUR_MS;
    // Deleted and added again, so that the oldest is first.
    if (this.counts.delete(key)) this.bytes -= measure(key);
    this.counts.set(key, { count: (isRecent ? known.count : 0) + 1, lastAt: now, detail });
    this.bytes += measure(key);
    for (const oldest of this.counts.keys()) {
      if (this.bytes <= this.maxBytes) break;
      this.counts.delete(oldest);
      this.bytes -= measure(oldest);
    }
  }

  /** Most frequent first. */
  list(limit: number): readonly (Readonly<Count<Detail>> & { readonly key: string })[] {
    const since = this.clock() - HOUR_MS;
    return [...this.counts]
      .filter(([, { lastAt }]) => lastAt >= since)
      .map(([key, count]) => ({ key, ...count }))
      .sort((a, b) => b.count - a.count)
      .slice(0, limit);
  }
}

/** With a detail of at most a few hundred characters. */
const measure = (key: string): number => textBytes(key) + 1_000;
