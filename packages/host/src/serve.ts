import { createOracleApp } from './app/create-oracle-app.js';
import { ConfigError, loadConfig } from './config/config.js';
import { createLogger } from './observe/logger.js';
import { StoreError } from './store/database/store-error.js';

/** Runs the host as a process; resolves to its exit code when it could not start. */
export async function serve(): Promise<number> {
  try {
    const config = loadConfig();
    const logger = await createLogger(config);
    const app = await createOracleApp({ config, logger });
    const url = await app.listen();
    logger.info({ did: app.did }, `oracle ${config.oracle.name}`);
    logger.info(`listening on ${url}`);
    logger.info(`interface described at ${url}/docs`);
    return 0;
  } catch (error) {
    if (!isForTheOperator(error)) throw error;
    process.stderr.write(`${error.message}\n`);
    return 1;
  }
}

/** Faults an operator can mend, told without a stack. */
function isForTheOperator(error: unknown): error is Error {
  const isPortTaken = (error as NodeJS.ErrnoException)?.code === 'EADDRINUSE';
  return error instanceof ConfigError || error instanceof StoreError || isPortTaken;
}
