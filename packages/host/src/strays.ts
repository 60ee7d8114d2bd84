import type { Logger } from 'pino';

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
