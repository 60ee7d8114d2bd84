import type { Connection } from './connection.js';

/** How much a connection may be behind, in characters. */
const LIMIT = 1024 * 1024;
/** From here on a sender that can wait should. */
const FULL = LIMIT / 4;

/** Watches what a connection has not taken yet: one that falls too far behind is given up. */
export class WriteLimit {
  readonly #connection: Connection;
  #waiting = 0;

  constructor(connection: Connection, giveUp: () => void) {
    this.#connection = connection;
    connection.on('packetCreate', ({ data }: { data?: string | Buffer }) => {
      if (this.#waiting > LIMIT) giveUp();
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
    return new Promise((resolve) => {
      const settle = () => {
        connection.off('flush', settle).off('close', settle);
        resolve();
      };
      connection.on('flush', settle).on('close', settle);
    });
  }
}
