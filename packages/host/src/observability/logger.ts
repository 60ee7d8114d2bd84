import { type Logger, pino, stdTimeFunctions } from 'pino';
import type { Config } from '../config/config.js';

/** Makes the process's logger: JSON lines alike those of the gateway, or readable ones in a terminal. */
export async function createLogger({ logLevel }: Pick<Config, 'logLevel'>): Promise<Logger> {
  const options = {
    level: logLevel,
    base: null,
    timestamp: stdTimeFunctions.isoTime,
    formatters: { level: (level: string) => ({ level }) },
  };
  if (!process.stdout.isTTY) return pino(options);
  // Loaded only where a person reads: it would slow every other start.
  const { PinoPretty } = await import('pino-pretty');
  return pino(options, PinoPretty({ colorize: true, singleLine: true }));
}
