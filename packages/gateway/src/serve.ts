import { ConfigError, loadConfig } from './config/config.js';
import { createLogger } from './observe/metrics.js';

/** Runs the gateway as a process; resolves to the exit code once it has stopped or could not start, having reported why. */
export async function serve(
  report: (fault: string) => void = (fault) => process.stderr.write(`${fault}\n`),
): Promise<number> {
  try {
    const config = loadConfig();
    // Loaded after the configuration is checked, so that errors show at once.
    const { createGateway } = await import('./create-gateway.js');
    const logger = createLogger(config);
    // The gateway keeps running when the reader of its log is gone.
    process.stdout.on('error', () => {});
    const gateway = createGateway({ config, logger });
    const url = await gateway.listen();
    if (gateway.did) logger.info({ did: gateway.did }, `UCANs are addressed to ${gateway.did}`);
    if (gateway.metricsUrl) logger.info({ url: gateway.metricsUrl }, 'operator port');
    logger.info({ url }, `listening on ${url}, routes described at ${url}/docs`);
    await waitForShutdown();
    logger.info({}, 'stopping');
    await gateway.close();
    return 0;
  } catch (error) {
    if (!isOperatorError(error)) throw error;
    report(error.message);
    return 1;
  }
}

const STOP_SIGNALS = ['SIGTERM', 'SIGINT'] as const;

/** Waits for a first SIGTERM or Ctrl-C; a second one ends the process at once, as usual. */
function waitForShutdown(): Promise<void> {
  return new Promise((resolve) => {
    const stop = () => {
      for (const signal of STOP_SIGNALS) process.off(signal, stop);
      resolve();
    };
    for (const signal of STOP_SIGNALS) process.on(signal, stop);
  });
}

/** An address, a file or a folder that cannot be used. */
const OPERATOR_ERRORS: ReadonlySet<string> = new Set([
  'EADDRINUSE',
  'EADDRNOTAVAIL',
  'ENOTFOUND',
  'EACCES',
  'EPERM',
  'EISDIR',
  'ENOTDIR',
  'EROFS',
  'ENOSPC',
]);

/** Errors that an operator can fix, shown without a stack. */
function isOperatorError(error: unknown): error is Error {
  const { code = '' } = (error ?? {}) as NodeJS.ErrnoException;
  return error instanceof ConfigError || OPERATOR_ERRORS.has(code);
}
