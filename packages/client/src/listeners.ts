/** Those who want to be told something. */
export class Listeners<T> {
  private readonly listeners = new Set<(told: T) => void>();

  /** Returns what ends it. */
  add(listener: (told: T) => void): () => void {
    // Wrapped, so that one function added twice is two listeners.
    const own = (told: T) => listener(told);
    this.listeners.add(own);
    return () => void this.listeners.delete(own);
  }

  notify(told: T): void {
    for (const listener of [...this.listeners]) listener(told);
  }
}
