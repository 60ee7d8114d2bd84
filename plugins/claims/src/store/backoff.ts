const FIRST_MS = 30_000;
const LONGEST_MS = 6 * 60 * 60 * 1000;

/** How long to wait after so many attempts: twice as long each time, at most six hours. */
export function backoff(attempts: number): number {
  return Math.min(FIRST_MS * 2 ** Math.max(0, attempts - 1), LONGEST_MS);
}
