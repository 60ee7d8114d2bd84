import { createOracleApp, type OracleAppOptions } from './app/create-oracle-app.js';
import { BootError } from './config/boot-error.js';
import { StoreError } from './store/database/store-error.js';
import { untilTold } from './until-told.js';

/** Runs the host as a process; resolves to the exit code once it has stopped or could not start. */
export async function serve(options: OracleAppOptions = {}): Promise<number> {
  try {
    const app = await createOracleApp(options);
    process.on('unhandledRejection', app.reportStray);
    await app.listen();
    await untilTold();
    await app.close();
    return 0;
  } catch (error) {
    if (!isForTheOperator(error)) throw error;
    process.stderr.write(`${error.message}${remedyFor(error)}\n`);
    return 1;
  }
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
  return error instanceof BootError || error instanceof StoreError || OPERATOR_FAULTS.has(code);
}

function remedyFor(error: NodeJS.ErrnoException): string {
  if (error.code !== 'EADDRINUSE') return '';
  return '\nAnother program listens there: stop it, or set PORT (or METRICS_PORT) to another port';
}
