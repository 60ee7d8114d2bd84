import type { Logger } from 'pino';
import { isRunByNpm } from './config/read-variables.js';

/** Writes down failures that nobody waited for, such as a promise a plugin forgot; without it Node ends the process. */
export function reportStrays(logger: Logger): void {
  process.on('unhandledRejection', (err) =>
    logger.error({ err }, 'a failure that nobody waited for; going on'),
  );
}

/** Resolves when something throws where nobody can catch it, such as in a timer of a plugin. */
export function untilBroken(logger: Logger): Promise<void> {
  return new Promise((resolve) => {
    process.once('uncaughtException', (err) => {
      // A timer may throw it again and again until the end.
      process.on('uncaughtException', () => undefined);
      logger.fatal({ err }, 'something threw where nobody could catch it; ending with code 1');
      resolve();
    });
  });
}

const STOP_SIGNALS = ['SIGTERM', 'SIGINT'] as const;
const LOOK_MS = 500;

const parent = process.ppid;

/** Waits for a first SIGTERM or Ctrl-C, or for npm to go; a second signal ends the process at once, as usual. */
export function untilTold(): Promise<void> {
  return new Promise((resolve) => {
    const stop = () => {
      for (const signal of STOP_SIGNALS) process.off(signal, stop);
      clearInterval(watch);
      resolve();
    };
    // The shell that npm starts ends by a signal without passing it on.
    const watch = setInterval(() => {
      if (isRunByNpm() && process.ppid !== parent) stop();
    }, LOOK_MS).unref();
    for (const signal of STOP_SIGNALS) process.on(signal, stop);
  });
}
