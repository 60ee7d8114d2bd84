import {
  logUnhandledRejections,
  waitForShutdown,
  waitForUncaughtException,
} from '@sibyl/server-kit';
import { isOperatorError } from '@sibyl/server-kit/environment';
import { createOracleApp, type OracleApp, type OracleAppOptions } from './app/create-oracle-app.js';
import { classifyStoreError, StoreError } from './store/store-errors.js';

/** How long timers and sockets that a plugin left open may delay the end of the process. */
const EXIT_TIMEOUT_MS = 3000;
/** How long the process may take to store running turns after an uncaught exception. */
const CRASH_TIMEOUT_MS = 20_000;

/** Runs the host as a process; resolves to the exit code once it has stopped or could not start, having reported why. */
export async function serve(
  options: OracleAppOptions = {},
  report: (fault: string) => void = (fault) => process.stderr.write(`${fault}\n`),
): Promise<number> {
  try {
    const app = await createOracleApp(options);
    logUnhandledRejections(app.logger);
    const crashed = waitForUncaughtException(app.logger);
    await app.listen();
    return await Promise.race([
      waitForShutdown().then(() => stop(app)),
      crashed.then(() => crash(app)),
    ]);
  } catch (error) {
    if (!isForOperator(error)) throw error;
    report(`${error.message}${suggestRemedy(error)}`);
    return 1;
  }
}

/** Running turns may finish. */
async function stop(app: OracleApp): Promise<number> {
  await app.close();
  exitIn(EXIT_TIMEOUT_MS, 0);
  return 0;
}

/** The state of the process is unknown: running turns are stored as interrupted at once, and a new process must take over. */
async function crash(app: OracleApp): Promise<number> {
  exitIn(CRASH_TIMEOUT_MS, 1);
  await app.close(0);
  exitIn(EXIT_TIMEOUT_MS, 1);
  return 1;
}

/** Ends the process even if a plugin left timers or sockets open. */
function exitIn(ms: number, code: number): void {
  setTimeout(() => process.exit(code), ms).unref();
}

/** Whether the operator can fix an error, which is then reported without a stack. */
const isForOperator = (error: unknown): error is Error =>
  isOperatorError(error) || classifyStoreError(error) !== undefined;

function suggestRemedy(error: NodeJS.ErrnoException): string {
  // The message of a StoreError contains a remedy.
  if (!(error instanceof StoreError) && classifyStoreError(error) === 'full')
    return '\nThe disk is full: free some space where DATA_DIR or the database is, then start again';
  if (error.code !== 'EADDRINUSE') return '';
  return '\nAnother program listens there: stop it, or set PORT (or METRICS_PORT) to another port';
}
