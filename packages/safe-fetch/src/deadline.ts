import { SafeFetchError } from './safe-fetch-error.js';

/** The longest delay a Node timer keeps; a longer one would fire at once. */
const LONGEST_DELAY = 2 ** 31 - 1;

/** One time limit over a whole exchange, DNS and body included. */
export interface Deadline {
  /** Aborts with a `timeout` SafeFetchError, or with the caller's own reason. */
  readonly signal: AbortSignal;
  clear(): void;
}

/** `onClear` is called when the exchange is over, at least once. */
export function startDeadline(
  timeoutMs: number,
  caller: AbortSignal | null | undefined,
  onClear: () => void,
): Deadline {
  const controller = new AbortController();
  const expire = () => {
    const limit = `no full answer within ${timeoutMs} ms; retry later or raise timeoutMs`;
    controller.abort(new SafeFetchError('timeout', `The server gave ${limit}.`));
  };
  const follow = () => controller.abort(caller?.reason);
  const timer = setTimeout(expire, Math.min(timeoutMs, LONGEST_DELAY));
  if (caller?.aborted) follow();
  caller?.addEventListener('abort', follow, { once: true });
  return {
    signal: controller.signal,
    clear() {
      onClear();
      clearTimeout(timer);
      caller?.removeEventListener('abort', follow);
    },
  };
}
