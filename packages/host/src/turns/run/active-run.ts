import { OracleError } from '@sibyl/protocol';
import { createAbortReason } from '@sibyl/server-kit';
import type { SessionKey } from '../../bus/event-bus.js';
import type { HostLiveness } from '../../bus/host-bus.js';
import type { Frame } from '../../store/runs/frames.js';
import type { Run } from '../../store/runs/run.js';
import type { CancelReason, RunKey } from '../../store/schema/runs.js';
import type { Session } from '../../store/session-store.js';
import type { TurnAccount } from '../start/gates.js';
import type { TurnRequest } from '../turn-request.js';
import type { RunOutcome } from './run-end.js';
import { RunLog } from './run-log.js';
import { type Recording, RunRecorder } from './run-recorder.js';
import type { TurnProgress } from './turn-progress.js';

/** A run that this host executes or has queued: all that the host has of it in memory. */
export class ActiveRun {
  readonly request: TurnRequest;
  readonly session: Session;
  readonly account: TurnAccount;
  /** What earlier attempts have done; undefined in the first one. */
  readonly progress: TurnProgress | undefined;
  /** Gives back its place on this host; may be called more than once. */
  readonly freeSlot: () => void;
  readonly log: RunLog;
  readonly recorder: RunRecorder;
  readonly outcome: Promise<RunOutcome>;
  isExecuting = false;
  /** Whether a message that interrupts it has a place already. */
  isReplaced = false;
  private readonly controller = new AbortController();
  private resolve!: (outcome: RunOutcome) => void;
  private reason: CancelReason | undefined;
  private failure: OracleError | undefined;

  constructor(
    readonly run: Run,
    turn: Pick<ActiveRun, 'request' | 'session' | 'account' | 'freeSlot' | 'progress'>,
    recording: Recording,
    onFrame?: (frame: Frame) => void,
  ) {
    this.request = turn.request;
    this.session = turn.session;
    this.account = turn.account;
    this.freeSlot = turn.freeSlot;
    this.progress = turn.progress;
    this.log = new RunLog(onFrame);
    this.recorder = new RunRecorder(this, recording);
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

/** How many turns a host executes and has queued. */
export interface TurnCounts {
  readonly running: number;
  readonly queued: number;
}

/** The runs that this host executes or has queued, by id. */
export class ActiveRuns extends Map<string, ActiveRun> {
  find({ owner, runId }: RunKey): ActiveRun | undefined {
    const active = this.get(runId);
    return active?.run.owner === owner ? active : undefined;
  }

  list(): ActiveRun[] {
    return [...this.values()];
  }

  queued(): ActiveRun[] {
    return this.list().filter(({ isExecuting }) => !isExecuting);
  }

  count(): TurnCounts {
    const queued = this.queued().length;
    return { running: this.size - queued, queued };
  }

  ofSession({ owner, sessionId }: SessionKey): ActiveRun[] {
    return this.list().filter(({ run }) => run.owner === owner && run.sessionId === sessionId);
  }

  findExecuting(session: SessionKey): ActiveRun | undefined {
    return this.ofSession(session).find(({ isExecuting }) => isExecuting);
  }
}

/** How long turns continue without the database: their readers do not notice a short outage. */
const CONTINUE_MS = 10_000;

/** Stops the turns of a host that has lost its database, because other hosts take them over. */
export class DisconnectedTurns {
  private hasStopped = false;
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly liveness: HostLiveness,
    private readonly stopAll: () => void,
  ) {
    liveness.onLost(() => this.startTimer());
    liveness.onRegained(() => this.reset());
  }

  /** Whether the turns were stopped, and the database is still away. */
  get areStopped(): boolean {
    return this.hasStopped;
  }

  private startTimer(): void {
    clearTimeout(this.timer);
    const awayMs = performance.now() - this.liveness.lastSeen;
    this.timer = setTimeout(
      () => {
        this.hasStopped = true;
        this.stopAll();
      },
      Math.max(0, CONTINUE_MS - awayMs),
    ).unref();
  }

  private reset(): void {
    clearTimeout(this.timer);
    this.hasStopped = false;
  }
}
