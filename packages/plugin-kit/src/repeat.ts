import type { Logger } from './context.js';

interface RepeatOptions {
  readonly everyMs: number;
  readonly logger: Logger;
}

/** Work that is repeated until it is stopped. */
export interface Repetition {
  /** Starts a round as soon as none is running. */
  wake(): void;
  /** Resolves once the current round has ended; none starts after it. */
  stop(): Promise<void>;
}

/** How often rounds that fail one after the other are logged. */
const LOG_MS = 60_000;

/** Runs work now and every `everyMs`, never twice at the same time. A round that fails is logged, of many in a row one a minute. */
export function repeat(work: () => Promise<void>, { everyMs, logger }: RepeatOptions): Repetition {
  let current = Promise.resolve();
  let isWaiting = false;
  let isStopped = false;
  let loggedAt: number | undefined;
  const report = (err: unknown) => {
    if (loggedAt !== undefined && performance.now() - loggedAt < LOG_MS) return;
    loggedAt = performance.now();
    logger.warn({ err }, 'a repeated task failed; the next round tries again');
  };
  const startRound = () => {
    if (isWaiting || isStopped) return;
    isWaiting = true;
    current = current
      .then(async () => {
        isWaiting = false;
        await work();
        loggedAt = undefined;
      })
      .catch(report);
  };
  startRound();
  const timer = setInterval(startRound, everyMs);
  timer.unref();
  return {
    wake: startRound,
    stop: async () => {
      isStopped = true;
      clearInterval(timer);
      await current;
    },
  };
}
