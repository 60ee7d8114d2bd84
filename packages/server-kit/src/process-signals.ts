const STOP_SIGNALS = ['SIGTERM', 'SIGINT'] as const;
const PARENT_CHECK_MS = 500;

const parent = process.ppid;

/** The part of a pino logger that reports process-wide errors. */
export interface ProcessLogger {
  error(fields: object, message: string): void;
  fatal(fields: object, message: string): void;
}

/**
 * Resolves at the first SIGTERM or Ctrl-C, or when the npm script that started this process is gone. A second
 * signal ends the process at once, as usual.
 */
export function waitForShutdown(): Promise<void> {
  return new Promise((resolve) => {
    const stop = () => {
      for (const signal of STOP_SIGNALS) process.off(signal, stop);
      clearInterval(parentCheck);
      resolve();
    };
    // The shell that npm starts does not forward the signal that ends it.
    const parentCheck = setInterval(() => {
      if (isNpmScript() && process.ppid !== parent) stop();
    }, PARENT_CHECK_MS).unref();
    for (const signal of STOP_SIGNALS) process.on(signal, stop);
  });
}

const isNpmScript = (): boolean => process.env.npm_lifecycle_event !== undefined;

/** Logs unhandled rejections, such as a promise that a plugin forgot; by default they end the process. */
export function logUnhandledRejections(logger: ProcessLogger): void {
  process.on('unhandledRejection', (err) => logger.error({ err }, 'unhandled rejection'));
}

/** Resolves at the first uncaught exception, such as one in a timer of a plugin, after logging it. */
export function waitForUncaughtException(logger: ProcessLogger): Promise<void> {
  return new Promise((resolve) => {
    process.once('uncaughtException', (err) => {
      // A timer may throw again and again until the process ends.
      process.on('uncaughtException', () => undefined);
      logger.fatal({ err }, 'uncaught exception; ending with code 1');
      resolve();
    });
  });
}
