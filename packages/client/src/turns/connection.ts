import { OracleClientError } from '../oracle-client-error.js';

/** Three heartbeats (contract B4): a stream that is silent for longer has broken without saying so. */
const SILENCE_MS = 45_000;

/** One attempt to read a stream: ends with the caller's signal, or when nothing comes any more. */
export class Connection {
  readonly #silence = new AbortController();
  readonly signal: AbortSignal;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(signal: AbortSignal | undefined) {
    this.signal = signal ? AbortSignal.any([signal, this.#silence.signal]) : this.#silence.signal;
    this.heard();
  }

  /** To be called on every sign of life. */
  heard(): void {
    clearTimeout(this.#timer);
    const fault = new OracleClientError('network_error', 'The stream fell silent');
    this.#timer = setTimeout(() => this.#silence.abort(fault), SILENCE_MS);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#silence.abort();
  }
}
