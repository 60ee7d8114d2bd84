import type { Message } from '@sibyl/protocol';
import type { LiveTurn } from './live-turn.js';

/** Turns that have ended and are still kept: events of their run may come in a little later than its stream. */
const KEPT_AFTER_END = 5;

/** The turns of an open chat that are not only in the history: running, just ended, or never sent. */
export class LiveTurns {
  readonly #turns = new Map<string, LiveTurn>();

  get(requestId: string): LiveTurn | undefined {
    return this.#turns.get(requestId);
  }

  /** In the order they began. */
  list(): readonly LiveTurn[] {
    return [...this.#turns.values()];
  }

  put(live: LiveTurn): void {
    this.#turns.set(live.requestId, live);
  }

  /** Drops turns that have ended and are in the history, except for the latest. */
  dropStored(history: readonly Message[]): void {
    const stored = new Set(history.map(({ requestId }) => requestId));
    const ended = this.list().filter(
      ({ phase, requestId }) => phase === 'ended' && stored.has(requestId),
    );
    for (const { requestId } of ended.slice(0, -KEPT_AFTER_END)) this.#turns.delete(requestId);
  }
}
