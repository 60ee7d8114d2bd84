const DEFAULT_CAPACITY = 500;

/** Summaries by the hash of what they sum up; the least recently used ones give way. */
export class SummaryCache {
  private readonly entries = new Map<string, string>();

  constructor(private readonly capacity = DEFAULT_CAPACITY) {}

  get(hash: string): string | undefined {
    const summary = this.entries.get(hash);
    if (summary !== undefined) this.set(hash, summary);
    return summary;
  }

  set(hash: string, summary: string): void {
    this.entries.delete(hash);
    this.entries.set(hash, summary);
    if (this.entries.size <= this.capacity) return;
    for (const oldest of this.entries.keys()) return void this.entries.delete(oldest);
  }
}
