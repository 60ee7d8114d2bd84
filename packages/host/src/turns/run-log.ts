import {
  type ErrorCode,
  errorCatalog,
  OracleError,
  type PendingAnswer,
  type ReplyWarning,
} from '@sibyl/protocol';
import { ChangeSignal, createAbortReason, textBytes } from '@sibyl/server-kit';
import type { Frame } from '../store/runs/frames.js';
import type { Ending, Run } from '../store/runs/run.js';
import type { CancelReason, RunReport, StoredError, TokenUsage } from '../store/schema/runs.js';

/** Memory overhead of a frame. */
const FRAME_BYTES = 80;

/** The frames of a running turn in memory, for any number of readers at their own pace. */
export class RunLog {
  private readonly frames: Frame[] = [];
  private readonly changed = new ChangeSignal();
  private isClosed = false;
  private detached: Error | undefined;
  private frameBytes = 0;

  constructor(private readonly onFrame: (frame: Frame) => void = () => {}) {}

  /** Estimated memory of the frames. */
  get bytes(): number {
    return this.frameBytes;
  }

  get lastSeq(): number {
    return this.frames.length;
  }

  add(event: string, data: string): Frame {
    const frame = { seq: this.frames.length + 1, event, data };
    this.frames.push(frame);
    this.frameBytes += FRAME_BYTES + textBytes(data);
    this.changed.notify();
    this.onFrame(frame);
    return frame;
  }

  /** Begins with frames that are already stored. */
  load(frames: readonly Frame[]): void {
    for (const frame of frames) {
      this.frames.push(frame);
      this.frameBytes += FRAME_BYTES + textBytes(frame.data);
    }
  }

  /** Returns the frames after `after`. */
  since(after: number): readonly Frame[] {
    return this.frames.slice(after);
  }

  /** Makes readers fail: another host continues the log. */
  detach(error: Error): void {
    this.detached = error;
    this.close();
  }

  /** Ends the log: no frame follows. */
  close(): void {
    this.isClosed = true;
    this.changed.notify();
  }

  /**
   * Yields the frames after `after`, then new ones, until the log closes, or the signal is aborted and the reader does
   * not stay for the end.
   */
  async *read(
    after: number,
    signal: AbortSignal,
    staysForEnd: () => boolean = () => false,
  ): AsyncGenerator<readonly Frame[]> {
    const wake = () => this.changed.notify();
    signal.addEventListener('abort', wake, { once: true });
    try {
      let seen = Math.min(after, this.frames.length);
      while (!signal.aborted || staysForEnd()) {
        const fresh = this.frames.slice(seen);
        seen += fresh.length;
        if (fresh.length > 0) yield fresh;
        else if (this.detached) throw this.detached;
        else if (this.isClosed) return;
        else await this.changed.wait();
      }
    } finally {
      signal.removeEventListener('abort', wake);
    }
  }
}

/** A run that this process executes or has queued. */
export class LiveRun {
  readonly log: RunLog;
  readonly outcome: Promise<RunOutcome>;
  private readonly controller = new AbortController();
  private resolve!: (outcome: RunOutcome) => void;
  private reason: CancelReason | undefined;
  private failure: OracleError | undefined;

  constructor(
    readonly run: Run,
    onFrame?: (frame: Frame) => void,
  ) {
    this.log = new RunLog(onFrame);
    this.outcome = new Promise((resolve) => {
      this.resolve = resolve;
    });
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** Set when the run was canceled. */
  get cancelReason(): CancelReason | undefined {
    return this.reason;
  }

  /** Set when the host ended the run: the error for a caller that receives no answer. */
  get error(): OracleError | undefined {
    return this.failure;
  }

  read(after: number, signal: AbortSignal): AsyncGenerator<readonly Frame[]> {
    return this.log.read(after, signal, () => this.staysFor(signal));
  }

  /** Whether a reader that lost access still receives the end: the run was canceled, for the same reason. */
  staysFor({ reason }: AbortSignal): boolean {
    return this.reason !== undefined && reason instanceof OracleError;
  }

  /** Cancels the run; `error` is for a caller that would receive no text at all. */
  cancel(reason: CancelReason, error?: OracleError): void {
    if (this.signal.aborted) return;
    this.reason = reason;
    this.failure = error;
    this.controller.abort(new Error(`The turn was ${reason}`));
  }

  /** Ends the run as failed. */
  fail(error: OracleError): void {
    if (this.signal.aborted) return;
    this.failure = error;
    this.controller.abort(error);
  }

  /** Also aborts work that plugins still do for the turn. */
  settle(outcome: RunOutcome): void {
    this.resolve(outcome);
    this.controller.abort(TURN_OVER);
  }
}

const TURN_OVER = createAbortReason('The turn is over');

/** The most warnings in a reply; the stream contains all of them. */
export const MAX_WARNINGS = 50;

/** How a run ended, for callers that wait for the complete answer. */
export interface RunOutcome {
  readonly status: Ending;
  readonly messageId: string | undefined;
  readonly text: string;
  readonly warnings: readonly ReplyWarning[];
  readonly usage?: TokenUsage | undefined;
  /** Why the answer is missing or incomplete. */
  readonly error?: OracleError | undefined;
  /** The answers that a paused run waits for. */
  readonly pending?: readonly PendingAnswer[] | undefined;
}

/** Builds what is stored of a run so that a repeated request receives the same reply. */
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

/** Reads why a stored run has no answer; an unknown code becomes `internal_error`. */
export function readError({ status, error: reason, report }: Run): OracleError | undefined {
  const { error } = report;
  if (error === undefined) {
    const message = reason?.message ?? 'The turn failed';
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
