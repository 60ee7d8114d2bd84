import { type Logger, pino, stdTimeFunctions } from 'pino';
import type { Config } from '../config/config.js';
import { findScope } from './spans.js';

/** Creates the logger of the process: JSON lines in the format of the gateway, or readable lines in a terminal. */
export async function createLogger({ logLevel }: Pick<Config, 'logLevel'>): Promise<Logger> {
  const options = {
    level: logLevel,
    base: null,
    timestamp: stdTimeFunctions.isoTime,
    formatters: { level: (level: string) => ({ level }) },
  };
  if (!process.stdout.isTTY) return pino(options);
  // Loaded only in a terminal, because it slows the start.
  const { PinoPretty } = await import('pino-pretty');
  return pino(options, PinoPretty({ colorize: true, singleLine: true }));
}

/** Adds the ids of the current request, turn and session to every line, so that no caller has to pass them. */
export const withScopeIds = (logger: Logger): Logger =>
  logger.child({}, { formatters: { log: addScopeIds } });

function addScopeIds(line: object): object {
  const scope = findScope();
  if (!scope) return line;
  const { requestId, runId, sessionId, traceId } = scope;
  const turn = runId ? { runId, sessionId } : {};
  return { ...(requestId && { requestId }), ...turn, traceId, ...line };
}
