/** Waits; less when the caller leaves (then it throws) or when the network comes back. */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', settle);
      globalThis.removeEventListener?.('online', settle);
      if (signal?.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(settle, ms);
    signal?.addEventListener('abort', settle);
    globalThis.addEventListener?.('online', settle);
    if (signal?.aborted) settle();
  });
}
