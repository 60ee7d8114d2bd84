import type { Reply } from './reply.js';

/** What an entry takes beside its bytes: the key, the maps, the objects. */
const ENTRY_BYTES = 512;

interface Entry {
  readonly reply: Reply;
  /** Milliseconds of `performance.now()`; unset: never. */
  readonly expiresAt: number | undefined;
  bytes: number;
  /** Since it was last passed over. */
  isUsed: boolean;
}

/**
 * Replies by question, up to a number of bytes. The oldest goes first, but one that was used since its
 * turn came gets another: nearly the order of use, and nothing has to be moved when a reply is found.
 */
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
    if (entry.expiresAt !== undefined && entry.expiresAt <= performance.now()) {
      this.drop(key);
      return undefined;
    }
    entry.isUsed = true;
    return entry.reply;
  }

  /** Keeps a reply, for so long if a time is given. */
  set(key: string, reply: Reply, lifeMs?: number): void {
    this.drop(key);
    const bytes = ENTRY_BYTES + 2 * key.length + reply.body.length + (reply.text?.length ?? 0);
    // One reply must not drive out all others.
    if (bytes > this.maxBytes / 4) return;
    const expiresAt = lifeMs === undefined ? undefined : performance.now() + lifeMs;
    const entry: Entry = { reply, bytes, expiresAt, isUsed: false };
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
    for (const [key, entry] of this.entries) {
      if (this.total <= this.maxBytes) return;
      this.entries.delete(key);
      if (entry.isUsed) this.entries.set(key, Object.assign(entry, { isUsed: false }));
      else this.total -= entry.bytes;
    }
  }
}
