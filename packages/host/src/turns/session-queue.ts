import type { LiveRun, RunOutcome } from './run-log.js';
import type { TurnPlace } from './turn-limits.js';

/** A place in the order of a session's turns; it holds a run once that is stored. */
export interface Slot {
  live?: LiveRun;
  work?: () => Promise<RunOutcome>;
  /** Undefined once it is released or handed over. */
  place?: TurnPlace | undefined;
  isAtWork?: boolean;
}

/** The turns of one session: the first is at work, the others wait. */
export class Lane {
  private readonly slots: Slot[] = [];
  /** Settles when every start so far has been stored, so that storing keeps the order of slots. */
  lastStart: Promise<unknown> = Promise.resolve();

  get isFree(): boolean {
    return this.slots.length === 0;
  }

  get waiting(): number {
    return Math.max(0, this.slots.length - 1);
  }

  get atWork(): LiveRun | undefined {
    return this.slots[0]?.live;
  }

  isFirst(slot: Slot): boolean {
    return this.slots[0] === slot;
  }

  take(): Slot {
    const slot: Slot = {};
    this.slots.push(slot);
    return slot;
  }

  leave(slot: Slot): void {
    const index = this.slots.indexOf(slot);
    if (index >= 0) this.slots.splice(index, 1);
  }

  /** The first slot, once it holds a run that nobody works on yet; from now on somebody does. */
  nextToWork(): Slot | undefined {
    const [first] = this.slots;
    if (!first?.work || first.isAtWork) return undefined;
    first.isAtWork = true;
    return first;
  }

  /** Gives the place of a turn that is about to be interrupted to the message that interrupts it. */
  handOverPlace(): TurnPlace | undefined {
    const slot = this.slots.find(({ place }) => place !== undefined);
    const place = slot?.place;
    if (slot) slot.place = undefined;
    return place;
  }

  runs(): LiveRun[] {
    return this.slots.flatMap(({ live }) => live ?? []);
  }
}
