interface WaitLimits {
  readonly signal?: AbortSignal;
  readonly ms?: number;
}

/**
 * Wakes those that wait for a change of something that they read themselves. To miss none, a reader reads, and waits if there
 * was nothing, without an `await` in between.
 */
export class ChangeSignal {
  private readonly waiting = new Set<() => void>();

  /** Ends the waits in progress. */
  notify(): void {
    for (const wake of [...this.waiting]) wake();
  }

  /** Waits for the next change; false if the time is up or the signal is aborted first. */
  wait({ signal, ms }: WaitLimits = {}): Promise<boolean> {
    if (signal?.aborted) return Promise.resolve(false);
    return new Promise((resolve) => {
      const end = (isChanged: boolean) => {
        this.waiting.delete(wake);
        clearTimeout(timer);
        signal?.removeEventListener('abort', stop);
        resolve(isChanged);
      };
      const wake = () => end(true);
      const stop = () => end(false);
      const timer = ms === undefined ? undefined : setTimeout(stop, ms);
      signal?.addEventListener('abort', stop, { once: true });
      this.waiting.add(wake);
    });
  }
}
