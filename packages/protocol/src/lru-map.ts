/** What the map's own bookkeeping takes for an entry, beside its key and value. */
const ENTRY_BYTES = 100;

export interface LruLimits<K, V> {
  /** The most that all entries together may take, estimated by `measure`. */
  readonly maxBytes: number;
  /** The bytes an entry keeps alive, its key included. */
  readonly measure: (value: V, key: K) => number;
  readonly maxEntries?: number | undefined;
}

interface Entry<K, V> {
  readonly key: K;
  readonly value: V;
  readonly bytes: number;
  newer: Entry<K, V> | undefined;
  older: Entry<K, V> | undefined;
}

/**
 * A map bounded in bytes: the least recently used entries make room for new ones.
 *
 * The order is a linked list. Deleting and inserting a key again would order the entries of a `Map` too, but each time it
 * leaves a gap that later lookups of that key walk over: tens of microseconds for a key that is used often.
 */
export class LruMap<K, V> {
  private readonly entries = new Map<K, Entry<K, V>>();
  private readonly limits: LruLimits<K, V>;
  private newest: Entry<K, V> | undefined;
  private oldest: Entry<K, V> | undefined;
  private usedBytes = 0;

  constructor(limits: LruLimits<K, V>) {
    this.limits = limits;
  }

  get size(): number {
    return this.entries.size;
  }

  /** The estimated size of all entries. */
  get bytes(): number {
    return this.usedBytes;
  }

  /** Returns the value and marks it as used. */
  get(key: K): V | undefined {
    const entry = this.entries.get(key);
    if (!entry) return undefined;
    if (entry !== this.newest) {
      this.unlink(entry);
      this.append(entry);
    }
    return entry.value;
  }

  /** Stores the value, unless it alone exceeds the limit; returns whether it was stored. */
  set(key: K, value: V): boolean {
    const replaced = this.entries.get(key);
    const { maxBytes, measure, maxEntries = Number.POSITIVE_INFINITY } = this.limits;
    const bytes = measure(value, key) + ENTRY_BYTES;
    if (bytes > maxBytes || maxEntries < 1) {
      if (replaced) this.remove(replaced);
      return false;
    }
    if (replaced) {
      this.unlink(replaced);
      this.usedBytes -= replaced.bytes;
    }
    const entry: Entry<K, V> = { key, value, bytes, newer: undefined, older: undefined };
    this.entries.set(key, entry);
    this.append(entry);
    this.usedBytes += bytes;
    while (this.oldest && (this.usedBytes > maxBytes || this.entries.size > maxEntries))
      this.remove(this.oldest);
    return true;
  }

  delete(key: K): boolean {
    const entry = this.entries.get(key);
    if (entry) this.remove(entry);
    return entry !== undefined;
  }

  /** Deletes every matching entry and returns how many there were. */
  deleteWhere(matches: (value: V, key: K) => boolean): number {
    const before = this.size;
    for (const [key, { value }] of this.entries) if (matches(value, key)) this.delete(key);
    return before - this.size;
  }

  private append(entry: Entry<K, V>): void {
    entry.older = this.newest;
    entry.newer = undefined;
    if (this.newest) this.newest.newer = entry;
    else this.oldest = entry;
    this.newest = entry;
  }

  private unlink({ newer, older }: Entry<K, V>): void {
    if (newer) newer.older = older;
    else this.newest = older;
    if (older) older.newer = newer;
    else this.oldest = newer;
  }

  private remove(entry: Entry<K, V>): void {
    this.unlink(entry);
    this.entries.delete(entry.key);
    this.usedBytes -= entry.bytes;
  }
}

/** The most a string can take in memory: V8 uses two bytes per character beyond Latin-1. */
export const textBytes = (text: string): number => 2 * text.length + 24;
