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

/** Runs work now and every `everyMs`, never twice at the same time. A round that fails is logged. */
export function repeat(work: () => Promise<void>, { everyMs, logger }: RepeatOptions): Repetition {
  let current = Promise.resolve();
  let isWaiting = false;
  let isStopped = false;
  const startRound = () => {
    if (isWaiting || isStopped) return;
    isWaiting = true;
    current = current
      .then(() => {
        isWaiting = false;
        return work();
      })
      .catch((err) => logger.warn({ err }, 'a repeated task failed; the next round tries again'));
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
