import { ConfigError, loadConfig } from './config/config.js';
import { createLogger } from './observe/logger.js';
import { StoreError } from './store/database/store-error.js';

/** Runs the host as a process; resolves to the exit code once it has stopped or could not start. */
export async function serve(): Promise<number> {
  try {
    const config = loadConfig();
    // The rest is loaded once the configuration is known to be right, so that a fault shows at once.
    const { createOracleApp } = await import('./app/create-oracle-app.js');
    const logger = await createLogger(config);
    const app = await createOracleApp({ config, logger });
    const url = await app.listen();
    logger.info({ did: app.did }, `oracle ${config.oracle.name} is ${app.did}`);
    logger.info(`listening on ${url}, interface described at ${url}/docs`);
    await untilTold();
    logger.info('stopping');
    await app.close();
    return 0;
  } catch (error) {
    if (!isForTheOperator(error)) throw error;
    process.stderr.write(`${error.message}\n`);
    return 1;
  }
}

const STOP_SIGNALS = ['SIGTERM', 'SIGINT'] as const;

/** Waits for a first SIGTERM or Ctrl-C; a second one ends the process at once, as usual. */
function untilTold(): Promise<void> {
  return new Promise((resolve) => {
    const stop = () => {
      for (const signal of STOP_SIGNALS) process.off(signal, stop);
      resolve();
    };
    for (const signal of STOP_SIGNALS) process.on(signal, stop);
  });
}

/** An address or a folder that cannot be used. */
const OPERATOR_FAULTS: ReadonlySet<string> = new Set([
  'EADDRINUSE',
  'EADDRNOTAVAIL',
  'ENOTFOUND',
  'EACCES',
  'EPERM',
  'EEXIST',
  'ENOTDIR',
  'EROFS',
  'ENOSPC',
]);

/** Faults an operator can mend, told without a stack. */
function isForTheOperator(error: unknown): error is Error {
  const { code = '' } = (error ?? {}) as NodeJS.ErrnoException;
  return error instanceof ConfigError || error instanceof StoreError || OPERATOR_FAULTS.has(code);
}
