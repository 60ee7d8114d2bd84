import type { Reply } from './reply.js';

/** What an entry takes beside its bytes: the key, the maps, the objects. */
const ENTRY_BYTES = 512;

interface Entry {
  readonly reply: Reply;
  /** Milliseconds of `performance.now()`; unset: never. */
  readonly expiresAt: number | undefined;
  bytes: number;
}

/** Replies that came, or were asked for again, in the same period. */
class Generation {
  readonly entries = new Map<string, Entry>();
  bytes = 0;

  keep(key: string, entry: Entry): void {
    this.entries.set(key, entry);
    this.bytes += entry.bytes;
  }

  drop(key: string): void {
    const entry = this.entries.get(key);
    if (!entry) return;
    this.entries.delete(key);
    this.bytes -= entry.bytes;
  }
}

/**
 * Replies by question, up to a number of bytes. When half of it is new, what was not asked for since the
 * time before goes all at once: nearly the order of use, and nothing has to be searched to make room.
 */
export class ReplyCache {
  private young = new Generation();
  private old = new Generation();

  constructor(private readonly maxBytes: number) {}

  get bytes(): number {
    return this.young.bytes + this.old.bytes;
  }

  get size(): number {
    return this.young.entries.size + this.old.entries.size;
  }

  get(key: string): Reply | undefined {
    const recent = this.young.entries.get(key);
    const entry = recent ?? this.old.entries.get(key);
    if (!entry) return undefined;
    if (entry.expiresAt !== undefined && entry.expiresAt <= performance.now()) {
      this.drop(key);
      return undefined;
    }
    if (!recent) this.rejuvenate(key, entry);
    return entry.reply;
  }

  /** Keeps a reply, for so long if a time is given. */
  set(key: string, reply: Reply, lifeMs?: number): void {
    this.drop(key);
    const bytes = ENTRY_BYTES + 2 * key.length + reply.body.length + (reply.text?.length ?? 0);
    // One reply must not drive out all others.
    if (bytes > this.maxBytes / 4) return;
    const expiresAt = lifeMs === undefined ? undefined : performance.now() + lifeMs;
    const entry: Entry = { reply, bytes, expiresAt };
    this.young.keep(key, entry);
    reply.onGrown = (grown) => this.grow(key, entry, grown);
    this.age();
  }

  clear(): void {
    this.young = new Generation();
    this.old = new Generation();
  }

  private rejuvenate(key: string, entry: Entry): void {
    this.old.drop(key);
    this.young.keep(key, entry);
    this.age();
  }

  private grow(key: string, entry: Entry, bytes: number): void {
    const home = [this.young, this.old].find(({ entries }) => entries.get(key) === entry);
    if (!home) return;
    entry.bytes += bytes;
    home.bytes += bytes;
    this.age();
  }

  private drop(key: string): void {
    this.young.drop(key);
    this.old.drop(key);
  }

  private age(): void {
    if (this.young.bytes > this.maxBytes / 2) {
      this.old = this.young;
      this.young = new Generation();
    }
    if (this.bytes > this.maxBytes) this.old = new Generation();
  }
}
