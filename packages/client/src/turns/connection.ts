import { OracleClientError } from '../oracle-client-error.js';

/** Three heartbeats (contract B4): a stream that is silent for longer has broken without saying so. */
const SILENCE_MS = 45_000;

/** One attempt to read a stream: ends with the caller's signal, or when nothing can come any more. */
export class Connection {
  readonly #broken = new AbortController();
  readonly signal: AbortSignal;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(signal: AbortSignal | undefined) {
    this.signal = signal ? AbortSignal.any([signal, this.#broken.signal]) : this.#broken.signal;
    // Browsers know of a lost network long before the connection does.
    globalThis.addEventListener?.('offline', this.#goOffline);
    this.heard();
  }

  /** To be called on every sign of life. */
  heard(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#break('The stream fell silent'), SILENCE_MS);
  }

  end(): void {
    clearTimeout(this.#timer);
    globalThis.removeEventListener?.('offline', this.#goOffline);
    this.#broken.abort();
  }

  readonly #goOffline = () => this.#break('The network is gone');

  #break(why: string): void {
    this.#broken.abort(new OracleClientError('network_error', why));
  }
}
