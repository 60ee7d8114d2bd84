import type { Config } from '../config/config.js';

/** The logging interface; compatible with pino. */
export interface Logger {
  debug(fields: object, message?: string): void;
  info(fields: object, message?: string): void;
  warn(fields: object, message?: string): void;
  error(fields: object, message?: string): void;
}

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

/** A logger of JSON lines on standard output. */
export function createLogger({ logLevel }: Pick<Config, 'logLevel'>): Logger {
  const threshold = LEVELS.indexOf(logLevel);
  const at = (level: (typeof LEVELS)[number]) =>
    LEVELS.indexOf(level) < threshold
      ? () => {}
      : (fields: object, msg?: string) => {
          const line = { level, time: new Date().toISOString(), ...fields, msg };
          process.stdout.write(`${JSON.stringify(line)}\n`);
        };
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}
