import type { SessionKey } from '../bus/event-bus.js';
import type { HostLiveness } from '../bus/host-bus.js';
import type { RunKey } from '../store/schema/runs.js';
import type { LiveTurn } from './turn-setup.js';

/** How many turns a host executes and has queued. */
export interface TurnCounts {
  readonly running: number;
  readonly queued: number;
}

/** The turns that this host executes or has queued, by run. */
export class LiveTurns extends Map<string, LiveTurn> {
  find({ owner, runId }: RunKey): LiveTurn | undefined {
    const turn = this.get(runId);
    return turn?.live.run.owner === owner ? turn : undefined;
  }

  list(): LiveTurn[] {
    return [...this.values()];
  }

  queued(): LiveTurn[] {
    return this.list().filter(({ isExecuting }) => !isExecuting);
  }

  count(): TurnCounts {
    const queued = this.queued().length;
    return { running: this.size - queued, queued };
  }

  ofSession({ owner, sessionId }: SessionKey): LiveTurn[] {
    return this.list().filter(
      ({ live: { run } }) => run.owner === owner && run.sessionId === sessionId,
    );
  }

  findExecuting(session: SessionKey): LiveTurn | undefined {
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
