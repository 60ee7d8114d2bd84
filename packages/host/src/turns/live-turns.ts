import type { SessionKey } from '../bus/event-bus.js';
import type { RunKey } from '../store/runs/run.js';
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
