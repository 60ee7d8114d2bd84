/** A map that drops the entry used longest ago when it is full. */
export class BoundedMap<K, V> {
  readonly #entries = new Map<K, V>();

  constructor(private readonly capacity: number) {}

  get size(): number {
    return this.#entries.size;
  }

  get(key: K): V | undefined {
    const value = this.#entries.get(key);
    if (value === undefined) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, value);
    return value;
  }

  set(key: K, value: V): void {
    this.#entries.delete(key);
    this.#entries.set(key, value);
    if (this.#entries.size <= this.capacity) return;
    const [oldest] = this.#entries.keys();
    this.#entries.delete(oldest as K);
  }

  delete(key: K): boolean {
    return this.#entries.delete(key);
  }

  /** Drops every entry that matches and says how many there were. */
  deleteWhere(matches: (value: V, key: K) => boolean): number {
    const before = this.#entries.size;
    for (const [key, value] of this.#entries) if (matches(value, key)) this.#entries.delete(key);
    return before - this.#entries.size;
  }
}
