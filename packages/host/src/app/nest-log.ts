import type { LoggerService } from '@nestjs/common';
import type { Logger } from 'pino';

/** Sends what Nest has to say to the host's log; its start-up chatter only at debug level. */
export class NestLog implements LoggerService {
  constructor(private readonly logger: Logger) {}

  log(message: unknown): void {
    this.logger.debug(String(message));
  }

  warn(message: unknown): void {
    this.logger.warn(String(message));
  }

  error(message: unknown, stack?: unknown): void {
    this.logger.error({ stack }, String(message));
  }
}
