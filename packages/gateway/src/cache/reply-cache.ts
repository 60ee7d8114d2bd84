import { LruMap, textBytes } from '@sibyl/server-kit';
import type { Reply } from './reply.js';

/** What an entry takes beside its key and bytes: the objects, the tag, two buffers. */
const ENTRY_BYTES = 512;

interface Entry {
  readonly reply: Reply;
  /** Milliseconds of `performance.now()`; unset: never. */
  readonly expiresAt: number | undefined;
}

/** Replies by question, up to a number of bytes; the least recently used ones make room. */
export class ReplyCache {
  private readonly entries: LruMap<string, Entry>;

  constructor(private readonly maxBytes: number) {
    this.entries = new LruMap({
      maxBytes,
      sizeOf: ({ reply }, key) => ENTRY_BYTES + textBytes(key) + reply.bytes,
    });
  }

  get bytes(): number {
    return this.entries.bytes;
  }

  get size(): number {
    return this.entries.size;
  }

  get(key: string): Reply | undefined {
    const entry = this.entries.get(key);
    if (!entry) return undefined;
    if (entry.expiresAt === undefined || entry.expiresAt > performance.now()) return entry.reply;
    this.entries.delete(key);
    return undefined;
  }

  /** Keeps a reply, for so long if a time is given. */
  set(key: string, reply: Reply, lifeMs?: number): void {
    this.entries.delete(key);
    // One reply must not drive out all others.
    if (ENTRY_BYTES + textBytes(key) + reply.bytes > this.maxBytes / 4) return;
    const expiresAt = lifeMs === undefined ? undefined : performance.now() + lifeMs;
    const entry: Entry = { reply, expiresAt };
    this.entries.set(key, entry);
    reply.onGrown = () => {
      // Stored again, so that its new size counts.
      if (this.entries.get(key) === entry) this.entries.set(key, entry);
    };
  }

  clear(): void {
    this.entries.deleteWhere(() => true);
  }
}
