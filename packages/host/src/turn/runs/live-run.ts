import type { OracleError } from '@sibyl/protocol';
import type { Run } from '../../store/runs/run.js';
import { RunLog } from './run-log.js';
import type { RunOutcome } from './run-outcome.js';

/** Why a turn was cut short: by its user, or by another turn or the host. */
export type CutReason = 'aborted' | 'interrupted';

/** A run that this process carries out, or will when its turn comes. */
export class LiveRun {
  readonly log = new RunLog();
  readonly outcome: Promise<RunOutcome>;
  readonly #abort = new AbortController();
  #settle!: (outcome: RunOutcome) => void;
  #cutReason: CutReason | undefined;
  #error: OracleError | undefined;

  constructor(readonly run: Run) {
    this.outcome = new Promise((resolve) => {
      this.#settle = resolve;
    });
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Set when the run is to end before its time. */
  get cutReason(): CutReason | undefined {
    return this.#cutReason;
  }

  /** Set when the host ended the run: what a caller without an answer is answered instead. */
  get error(): OracleError | undefined {
    return this.#error;
  }

  /** Ends the run before its time; `error` is for a caller who would get no text at all. */
  cut(reason: CutReason, error?: OracleError): void {
    if (this.signal.aborted) return;
    this.#cutReason = reason;
    this.#error = error;
    this.#abort.abort(new Error(`The turn was ${reason}`));
  }

  /** Ends the run as failed. */
  fail(error: OracleError): void {
    if (this.signal.aborted) return;
    this.#error = error;
    this.#abort.abort(error);
  }

  /** What plugins still do for the turn ends with it. */
  settle(outcome: RunOutcome): void {
    this.#settle(outcome);
    this.#abort.abort(new Error('The turn is over'));
  }
}
