import type { LiveRun, RunOutcome } from './run-log.js';
import type { TurnSlot } from './turn-limits.js';

/** A turn in the queue of its session; the run is set when it is stored. */
export interface QueuedTurn {
  liveRun?: LiveRun;
  execute?: () => Promise<RunOutcome>;
  /** Undefined after it was released or transferred. */
  slot?: TurnSlot | undefined;
  isRunning?: boolean;
}

/** The turns of one session: the first runs, the others wait. */
export class SessionQueue {
  private readonly turns: QueuedTurn[] = [];
  /** Settles when all earlier turns are stored, so that runs are stored in the order of the queue. */
  lastStart: Promise<unknown> = Promise.resolve();

  get isEmpty(): boolean {
    return this.turns.length === 0;
  }

  get waitingCount(): number {
    return Math.max(0, this.turns.length - 1);
  }

  get current(): LiveRun | undefined {
    return this.turns[0]?.liveRun;
  }

  isFirst(slot: QueuedTurn): boolean {
    return this.turns[0] === slot;
  }

  add(): QueuedTurn {
    const slot: QueuedTurn = {};
    this.turns.push(slot);
    return slot;
  }

  remove(slot: QueuedTurn): void {
    const index = this.turns.indexOf(slot);
    if (index >= 0) this.turns.splice(index, 1);
  }

  /** Marks the first turn as running and returns it; undefined if it is not stored yet or already running. */
  startNext(): QueuedTurn | undefined {
    const [first] = this.turns;
    if (!first?.execute || first.isRunning) return undefined;
    first.isRunning = true;
    return first;
  }

  /** Takes the slot of a turn that is about to be interrupted, for the message that interrupts it. */
  transferSlot(): TurnSlot | undefined {
    const slot = this.turns.find(({ slot }) => slot !== undefined);
    const place = slot?.slot;
    if (slot) slot.slot = undefined;
    return place;
  }

  liveRuns(): LiveRun[] {
    return this.turns.flatMap(({ liveRun }) => liveRun ?? []);
  }
}
