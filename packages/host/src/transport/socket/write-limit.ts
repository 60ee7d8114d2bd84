import type { Connection } from './connection.js';

/** How much a connection may be behind, in characters. */
const LIMIT = 1024 * 1024;
/** From here on a sender that can wait should. */
const FULL = LIMIT / 4;

interface WriteLimitOptions {
  /** How long a connection may take nothing while somebody waits for it. */
  readonly stallMs: number;
  /** Called when the connection is too far behind, or takes nothing. */
  readonly giveUp: () => void;
}

/** Watches what a connection has not taken yet: one that falls too far behind is given up. */
export class WriteLimit {
  readonly #connection: Connection;
  readonly #options: WriteLimitOptions;
  #waiting = 0;

  constructor(connection: Connection, options: WriteLimitOptions) {
    this.#connection = connection;
    this.#options = options;
    connection.on('packetCreate', ({ data }: { data?: string | Buffer }) => {
      if (this.#waiting > LIMIT) options.giveUp();
      this.#waiting += data?.length ?? 0;
    });
    // What was handed over before has been taken when more is handed over.
    connection.on('flush', () => {
      this.#waiting = 0;
    });
  }

  /** Resolves when the connection has taken most of what it got, or is gone. */
  async room(): Promise<void> {
    while (this.#waiting > FULL && this.#connection.readyState === 'open') await this.#change();
  }

  #change(): Promise<void> {
    const connection = this.#connection;
    const { stallMs, giveUp } = this.#options;
    return new Promise((resolve) => {
      const settle = () => {
        clearTimeout(impatience);
        connection.off('flush', settle).off('close', settle);
        resolve();
      };
      const impatience = setTimeout(giveUp, stallMs);
      connection.on('flush', settle).on('close', settle);
    });
  }
}
