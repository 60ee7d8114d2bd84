import { type ErrorCode, errorCatalog, OracleError, type ReplyWarning } from '@sibyl/protocol';
import { textBytes } from '@sibyl/server-kit';
import type { Frame } from '../store/runs/frames.js';
import type { Run, RunReport, StoredError } from '../store/runs/run.js';

/** What a frame takes in memory beside its text. */
const FRAME_BYTES = 80;

/** The frames of a run under way, in memory; any number of readers, each at its own pace. */
export class RunLog {
  private readonly frames: Frame[] = [];
  private waiting: (() => void)[] = [];
  private isClosed = false;
  #bytes = 0;

  /** The memory that the frames take, estimated. */
  get bytes(): number {
    return this.#bytes;
  }

  get lastSeq(): number {
    return this.frames.length;
  }

  add(event: string, data: string): Frame {
    const frame = { seq: this.frames.length + 1, event, data };
    this.frames.push(frame);
    this.#bytes += FRAME_BYTES + textBytes(data);
    this.wake();
    return frame;
  }

  /** What is there above `after`. */
  since(after: number): readonly Frame[] {
    return this.frames.slice(after);
  }

  /** No frame follows. */
  close(): void {
    this.isClosed = true;
    this.wake();
  }

  /** Yields what is there above `after`, then what comes, until the log closes or the signal fires. */
  async *read(after: number, signal: AbortSignal): AsyncGenerator<readonly Frame[]> {
    const wake = () => this.wake();
    signal.addEventListener('abort', wake, { once: true });
    try {
      let seen = Math.min(after, this.frames.length);
      while (!signal.aborted) {
        const fresh = this.frames.slice(seen);
        seen += fresh.length;
        if (fresh.length > 0) yield fresh;
        else if (this.isClosed) return;
        else await new Promise<void>((resolve) => this.waiting.push(resolve));
      }
    } finally {
      signal.removeEventListener('abort', wake);
    }
  }

  private wake(): void {
    if (this.waiting.length === 0) return;
    const waiting = this.waiting;
    this.waiting = [];
    for (const resolve of waiting) resolve();
  }
}

/** Why a turn was cut short: by its user, or by another turn or the host. */
export type CutReason = 'aborted' | 'interrupted';

/** A run that this process carries out, or will when its turn comes. */
export class LiveRun {
  readonly log = new RunLog();
  readonly outcome: Promise<RunOutcome>;
  private readonly abort = new AbortController();
  #settle!: (outcome: RunOutcome) => void;
  #cutReason: CutReason | undefined;
  #error: OracleError | undefined;

  constructor(readonly run: Run) {
    this.outcome = new Promise((resolve) => {
      this.#settle = resolve;
    });
  }

  get signal(): AbortSignal {
    return this.abort.signal;
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
    this.abort.abort(new Error(`The turn was ${reason}`));
  }

  /** Ends the run as failed. */
  fail(error: OracleError): void {
    if (this.signal.aborted) return;
    this.#error = error;
    this.abort.abort(error);
  }

  /** What plugins still do for the turn ends with it. */
  settle(outcome: RunOutcome): void {
    this.#settle(outcome);
    this.abort.abort(new Error('The turn is over'));
  }
}

/** Warnings a reply has at most; the stream has them all. */
export const MAX_WARNINGS = 50;

/** How a run ended, for whoever waits for the whole answer. */
export interface RunOutcome {
  readonly status: 'finished' | 'aborted' | 'interrupted' | 'failed';
  readonly messageId: string | undefined;
  readonly text: string;
  readonly warnings: readonly ReplyWarning[];
  /** Why the turn has no answer, or only a part of one. */
  readonly error?: OracleError | undefined;
}

/** What is kept of a run so that a repeated request is answered as the first one was. */
export function createReport(warnings: readonly ReplyWarning[], error?: OracleError): RunReport {
  const kept = warnings.slice(0, MAX_WARNINGS).map(({ code, message }) => ({ code, message }));
  return {
    ...(kept.length > 0 && { warnings: kept }),
    ...(error && { error: toStoredError(error) }),
  };
}

function toStoredError(error: OracleError): StoredError {
  const { code, message, lines, fields, retryAfterSeconds } = error;
  return {
    code,
    message: lines ?? message,
    ...(Object.keys(fields).length > 0 && { fields }),
    ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
  };
}

/** Why a stored run has no answer; a code that this version does not know is a fault of the host. */
export function readError({ status, fault, report }: Run): OracleError | undefined {
  const { error } = report;
  if (error === undefined) {
    // A run that an earlier version stored.
    const message = fault?.message ?? 'The turn failed';
    return status === 'failed' ? new OracleError('model_unavailable', { message }) : undefined;
  }
  const { code, message, fields = {}, retryAfterSeconds } = error;
  const isKnown = Object.hasOwn(errorCatalog, code);
  return new OracleError(isKnown ? (code as ErrorCode) : 'internal_error', {
    message,
    fields,
    ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
  });
}
