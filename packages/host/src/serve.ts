import { createOracleApp, type OracleApp, type OracleAppOptions } from './app/create-oracle-app.js';
import { BootError } from './config/read-variables.js';
import { reportStrays, untilBroken, untilTold } from './process-signals.js';
import { classifyStoreError, StoreError } from './store/store-errors.js';

/** How long what a plugin left behind may keep a process that has stopped. */
const LINGER_MS = 3000;
/** How long a broken process may try to store what it has. */
const LAST_MS = 20_000;

/** Runs the host as a process; resolves to the exit code once it has stopped or could not start. */
export async function serve(options: OracleAppOptions = {}): Promise<number> {
  try {
    const app = await createOracleApp(options);
    reportStrays(app.logger);
    const broken = untilBroken(app.logger);
    await app.listen();
    return await Promise.race([untilTold().then(() => stop(app)), broken.then(() => giveUp(app))]);
  } catch (error) {
    if (!isForTheOperator(error)) throw error;
    process.stderr.write(`${error.message}${remedyFor(error)}\n`);
    return 1;
  }
}

/** As it is told to: turns at work may finish. */
async function stop(app: OracleApp): Promise<number> {
  await app.close();
  endIn(LINGER_MS, 0);
  return 0;
}

/** Nobody knows what is left half done: turns are stored as they are, and a new process has to go on. */
async function giveUp(app: OracleApp): Promise<number> {
  endIn(LAST_MS, 1);
  await app.close(0);
  endIn(LINGER_MS, 1);
  return 1;
}

/** Ends the process though a timer or a socket that a plugin has left behind would keep it. */
function endIn(ms: number, code: number): void {
  setTimeout(() => process.exit(code), ms).unref();
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
  if (error instanceof BootError || OPERATOR_FAULTS.has(code)) return true;
  return classifyStoreError(error) !== undefined;
}

function remedyFor(error: NodeJS.ErrnoException): string {
  // A StoreError says itself what to do.
  if (!(error instanceof StoreError) && classifyStoreError(error) === 'full')
    return '\nThe disk is full: free some space where DATA_DIR or the database is, then start again';
  if (error.code !== 'EADDRINUSE') return '';
  return '\nAnother program listens there: stop it, or set PORT (or METRICS_PORT) to another port';
}
