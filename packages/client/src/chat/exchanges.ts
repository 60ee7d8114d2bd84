import type { Message } from '@sibyl/protocol';
import { isOpen, type LiveTurn } from './live-turn.js';

/** A question, its answer, and what is known of the turn between them. */
export interface Exchange {
  readonly requestId: string;
  readonly human?: Message;
  readonly ai?: Message;
  readonly live?: LiveTurn;
  /** Behind a turn that has not ended. */
  readonly isWaiting: boolean;
}

/** Puts stored messages and live turns together, in order. */
export function pairUp(stored: readonly Message[], live: readonly LiveTurn[]): Exchange[] {
  const exchanges = ofStored(stored);
  const places = new Map(exchanges.map(({ requestId }, i) => [requestId, i]));
  const firstOpen = live.find(isOpen);
  let place = exchanges.length;
  // From the last one backwards: one that is not stored stands before the one sent after it.
  for (const turn of live.toReversed()) {
    const { requestId } = turn;
    const isWaiting = isOpen(turn) && turn !== firstOpen;
    const known = places.get(requestId);
    place = known ?? place;
    const paired = {
      requestId,
      ...(known !== undefined && exchanges[known]),
      live: turn,
      isWaiting,
    };
    exchanges.splice(place, known === undefined ? 0 : 1, paired);
  }
  return exchanges;
}

/** A question begins an exchange; an answer joins the one it has the request id of. */
function ofStored(messages: readonly Message[]): Exchange[] {
  const exchanges: Exchange[] = [];
  for (const message of messages) {
    const { requestId, type } = message;
    const last = exchanges.at(-1);
    if (type === 'ai' && last?.requestId === requestId && !last.ai) {
      exchanges[exchanges.length - 1] = { ...last, ai: message };
    } else {
      exchanges.push({ requestId, [type]: message, isWaiting: false });
    }
  }
  return exchanges;
}
