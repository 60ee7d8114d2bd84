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
export function pairUp(stored: readonly Message[], live: Iterable<LiveTurn>): Exchange[] {
  const exchanges = ofStored(stored);
  const places = new Map(exchanges.map(({ requestId }, i) => [requestId, i]));
  let hasOpen = false;
  for (const turn of live) {
    const { requestId } = turn;
    const place = places.get(requestId) ?? exchanges.length;
    const isWaiting = hasOpen && isOpen(turn);
    exchanges[place] = { requestId, ...exchanges[place], live: turn, isWaiting };
    hasOpen ||= isOpen(turn);
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
