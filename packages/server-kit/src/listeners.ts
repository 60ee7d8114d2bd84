/** Listeners by what they listen to; a key without listeners takes no memory. */
export class Listeners<Key, Event = void> {
  private readonly byKey = new Map<Key, Set<(event: Event) => void>>();

  /** How many keys have listeners. */
  get size(): number {
    return this.byKey.size;
  }

  /** The keys that have listeners now. */
  list(): Key[] {
    return [...this.byKey.keys()];
  }

  /** Calls the listener for each event until the returned function is called. */
  add(key: Key, listener: (event: Event) => void): () => void {
    // A new function, so that the same listener may be added twice and removed once.
    const member = (event: Event) => listener(event);
    const members = this.byKey.get(key) ?? new Set();
    this.byKey.set(key, members.add(member));
    return () => {
      members.delete(member);
      if (members.size === 0 && this.byKey.get(key) === members) this.byKey.delete(key);
    };
  }

  /** Calls the listeners of a key in the order in which they were added; none that another one of them has removed. */
  call(key: Key, event: Event): void {
    const members = this.byKey.get(key);
    if (!members) return;
    // A copy: one that is added meanwhile is not called.
    for (const member of [...members]) if (members.has(member)) member(event);
  }
}
