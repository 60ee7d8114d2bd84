/** A set of callbacks that receive every value. */
export class Listeners<T> {
  private readonly listeners = new Set<(value: T) => void>();

  /** Returns a function that removes the listener. */
  add(listener: (value: T) => void): () => void {
    // Wrapped, so that a function added twice is called twice.
    const wrapped = (value: T) => listener(value);
    this.listeners.add(wrapped);
    return () => void this.listeners.delete(wrapped);
  }

  notify(value: T): void {
    for (const listener of [...this.listeners]) listener(value);
  }
}
