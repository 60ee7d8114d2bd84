/** What the map's own bookkeeping takes for an entry, beside its key and value. */
const ENTRY_BYTES = 100;

export interface LruLimits<K, V> {
  /** The most that all entries together may take, estimated by `measure`. */
  readonly maxBytes: number;
  /** The bytes an entry keeps alive, its key included. */
  readonly measure: (value: V, key: K) => number;
  readonly maxEntries?: number | undefined;
}

interface Entry<V> {
  readonly value: V;
  readonly bytes: number;
}

/** A map bounded in bytes: the least recently used entries make room for new ones. */
export class LruMap<K, V> {
  private readonly entries = new Map<K, Entry<V>>();
  private readonly limits: LruLimits<K, V>;
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
    this.entries.delete(key);
    this.entries.set(key, entry);
    return entry.value;
  }

  /** Stores the value, unless it alone exceeds the limit; returns whether it was stored. */
  set(key: K, value: V): boolean {
    this.delete(key);
    const { maxBytes, measure, maxEntries = Number.POSITIVE_INFINITY } = this.limits;
    const bytes = measure(value, key) + ENTRY_BYTES;
    if (bytes > maxBytes || maxEntries < 1) return false;
    this.entries.set(key, { value, bytes });
    this.usedBytes += bytes;
    for (const oldest of this.entries.keys()) {
      if (this.usedBytes <= maxBytes && this.entries.size <= maxEntries) break;
      this.delete(oldest);
    }
    return true;
  }

  delete(key: K): boolean {
    const entry = this.entries.get(key);
    if (!entry) return false;
    this.usedBytes -= entry.bytes;
    return this.entries.delete(key);
  }

  /** Deletes every matching entry and returns how many there were. */
  deleteWhere(matches: (value: V, key: K) => boolean): number {
    const before = this.size;
    for (const [key, { value }] of this.entries) if (matches(value, key)) this.delete(key);
    return before - this.size;
  }
}

/** The most a string can take in memory: V8 uses two bytes per character beyond Latin-1. */
export const textBytes = (text: string): number => 2 * text.length + 24;
