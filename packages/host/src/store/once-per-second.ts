const FRESH_MS = 1_000;

/**
 * Wraps a check that strangers can trigger: at most one runs at a time, and its result is reused for a second
 * after it came.
 */
export function oncePerSecond<T>(check: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined;
  let last: { readonly result: Promise<T>; readonly at: number } | undefined;
  return () => {
    if (running) return running;
    if (last && performance.now() - last.at < FRESH_MS) return last.result;
    const result = check();
    running = result;
    const settle = () => {
      running = undefined;
      last = { result, at: performance.now() };
    };
    result.then(settle, settle);
    return result;
  };
}
