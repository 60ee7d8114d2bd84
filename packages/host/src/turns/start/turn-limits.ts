import { OracleError } from '@sibyl/protocol';
import { createRefusal, type Holder, Places } from '@sibyl/server-kit';

/** By then another turn has probably ended. */
const RETRY_SECONDS = 5;

interface TurnLimits {
  readonly maxPerUser: number;
  /** For all users together. */
  readonly max: number;
}

/**
 * Limits the turns that run or wait on this host before gates are asked. The store enforces the limit per user for all
 * hosts together.
 */
export class TurnSlots {
  private readonly places: Places;
  private readonly max: number;

  constructor({ max, maxPerUser }: TurnLimits) {
    this.max = max;
    this.places = new Places({ max, maxPerOwner: maxPerUser });
  }

  get hasRoom(): boolean {
    return this.places.size < this.max;
  }

  /** Whether others cause the load of this host, not the address of the holder. */
  hasFew(holder: Omit<Holder, 'owner'>): boolean {
    return this.places.hasFew(holder);
  }

  /** Takes a slot and returns the function that releases it; throws if there is none for the holder. Never waits. */
  acquire(holder: Holder): () => void {
    this.assertFree(holder);
    return this.places.force(holder);
  }

  /** Throws if there is no slot for the holder now. */
  assertFree(holder: Holder): void {
    const refusal = this.places.findRefusal(holder);
    if (refusal === undefined) return;
    throw createRefusal(refusal, { owner: 'too_many_turns', total: 'host_busy' }, RETRY_SECONDS);
  }

  /** Takes a slot even if none is free: for a turn that replaces one, or that a host has accepted already. */
  take(holder: Holder): () => void {
    return this.places.force(holder);
  }
}

/** The error for a user at the limit of turns. */
export const tooManyTurns = (): OracleError =>
  new OracleError('too_many_turns', { retryAfterSeconds: RETRY_SECONDS });

/** The error for messages that this host has no capacity for. */
export const hostBusy = (): OracleError =>
  new OracleError('host_busy', { retryAfterSeconds: RETRY_SECONDS });

/** The error for messages that arrive during shutdown. */
export const hostStopping = (): OracleError =>
  new OracleError('host_stopping', { retryAfterSeconds: RETRY_SECONDS });

/** The errors for messages that are not accepted, by the result of starting a run. */
export const startErrors = {
  conflict: () => new OracleError('idempotency_conflict'),
  superseded: () => new OracleError('turn_interrupted', { message: SUPERSEDED }),
  busy: () => new OracleError('turn_running'),
  'queue-full': () => new OracleError('queue_full'),
  'too-many': tooManyTurns,
  'unknown-session': () => new OracleError('session_not_found'),
  'unknown-message': () => new OracleError('message_not_found'),
};

const SUPERSEDED =
  'The host stopped before it answered this message, and later messages were sent. Send it again with another Idempotency-Key.';

/** How often the delay of the event loop is measured, and over what time it is averaged. */
const TICK_MS = 100;
const AVERAGED_MS = 1_000;

/** Longer delays of the event loop would be noticed by those whose turns run. */
const MAX_LOOP_DELAY_MS = 150;
/** From here on, an address without a free place is refused before its requests are read. */
const HIGH_LOOP_DELAY_MS = 30;
/** With fewer turns, something else delays the event loop, and refusing turns would not help. */
const FEW_TURNS = 64;

/** Writes of turns that start now would wait for longer than this. */
const MAX_STORE_DELAY_MS = 1_000;

/** Turns that begin before others are heard: each takes some milliseconds, and hundreds may be accepted at once. */
const STARTS_PER_LOOP = 4;

/** Begins a few turns in each pass of the event loop, so that a burst of them does not hold up all other requests. */
export class StartPace {
  private left = STARTS_PER_LOOP;
  private waiting: (() => void)[] = [];
  private isScheduled = false;

  run(start: () => void): void {
    this.schedule();
    if (this.left === 0) return void this.waiting.push(start);
    this.left -= 1;
    start();
  }

  private schedule(): void {
    if (this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(() => {
      this.isScheduled = false;
      this.left = STARTS_PER_LOOP;
      for (const start of this.waiting.splice(0, STARTS_PER_LOOP)) this.run(start);
    });
  }
}

/** Measures whether this host has more work than it can do in time. */
export class HostLoad {
  private readonly estimateStoreDelay: () => number;
  private readonly timer: NodeJS.Timeout;
  private tickedAt = performance.now();
  private loopDelayMs = 0;

  constructor(estimateStoreDelay: () => number) {
    this.estimateStoreDelay = estimateStoreDelay;
    this.timer = setInterval(() => this.measureLoop(), TICK_MS).unref();
  }

  /** Whether one more turn would be one too many, beside those that this host executes and has queued. */
  isTooHigh(turns: number): boolean {
    if (this.estimateStoreDelay() > MAX_STORE_DELAY_MS) return true;
    return turns >= FEW_TURNS && this.loopDelayMs > MAX_LOOP_DELAY_MS;
  }

  /** Whether requests that will be refused should be refused at once. */
  isHigh(turns: number): boolean {
    return turns >= FEW_TURNS && this.loopDelayMs > HIGH_LOOP_DELAY_MS;
  }

  close(): void {
    clearInterval(this.timer);
  }

  private measureLoop(): void {
    const now = performance.now();
    const passedMs = now - this.tickedAt;
    this.tickedAt = now;
    const share = Math.min(1, passedMs / AVERAGED_MS);
    this.loopDelayMs += share * (Math.max(0, passedMs - TICK_MS) - this.loopDelayMs);
  }
}
