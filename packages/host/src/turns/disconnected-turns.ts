import type { HostLiveness } from '../bus/host-bus.js';

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
