import type { Reply } from './reply.js';

/** What an entry takes beside its bytes: the key, the maps, the objects. */
const ENTRY_BYTES = 512;

interface Entry {
  readonly reply: Reply;
  /** Milliseconds of `performance.now()`. */
  readonly expiresAt: number;
  bytes: number;
}

/** Replies by question, up to a number of bytes; the one used longest ago goes first. */
export class ReplyCache {
  private readonly entries = new Map<string, Entry>();
  private total = 0;

  constructor(private readonly maxBytes: number) {}

  get bytes(): number {
    return this.total;
  }

  get size(): number {
    return this.entries.size;
  }

  get(key: string): Reply | undefined {
    const entry = this.entries.get(key);
    if (!entry) return undefined;
    this.entries.delete(key);
    if (entry.expiresAt <= performance.now()) {
      this.total -= entry.bytes;
      return undefined;
    }
    this.entries.set(key, entry);
    return entry.reply;
  }

  /** Keeps a reply, for so long if a time is given. */
  set(key: string, reply: Reply, lifeMs = Number.POSITIVE_INFINITY): void {
    this.drop(key);
    const bytes = ENTRY_BYTES + 2 * key.length + reply.body.length;
    // One reply must not drive out all others.
    if (bytes > this.maxBytes / 4) return;
    const entry = { reply, bytes, expiresAt: performance.now() + lifeMs };
    this.entries.set(key, entry);
    this.total += bytes;
    reply.onGrown = (grown) => this.grow(key, entry, grown);
    this.shrink();
  }

  clear(): void {
    this.entries.clear();
    this.total = 0;
  }

  private grow(key: string, entry: Entry, bytes: number): void {
    if (this.entries.get(key) !== entry) return;
    entry.bytes += bytes;
    this.total += bytes;
    this.shrink();
  }

  private drop(key: string): void {
    this.total -= this.entries.get(key)?.bytes ?? 0;
    this.entries.delete(key);
  }

  private shrink(): void {
    for (const key of this.entries.keys()) {
      if (this.total <= this.maxBytes) return;
      this.drop(key);
    }
  }
}
