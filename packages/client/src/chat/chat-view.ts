import type { ChatMessage, ChatState } from './chat.js';
import { type Exchange, pairUp } from './exchanges.js';
import type { History } from './history.js';
import type { LiveTurn } from './live-turn.js';
import { showExchange } from './show-exchange.js';

export interface ChatParts {
  readonly history: History;
  readonly live: readonly LiveTurn[];
  readonly loading: 'loading' | 'loaded' | 'failed';
  readonly error: ChatState['error'];
  readonly connection: ChatState['connection'];
}

interface Shown {
  readonly exchange: Exchange;
  readonly messages: readonly ChatMessage[];
}

/** Makes the state of a chat; what has not changed stays the same object. */
export class ChatView {
  #shown = new Map<string, Shown>();
  #messages: readonly ChatMessage[] = [];

  show({ history, live: turns, loading, error, connection }: ChatParts): ChatState {
    const shown = pairUp(history.messages, turns).map((exchange) => this.#show(exchange));
    this.#shown = new Map(shown.map((each) => [keyOf(each.exchange), each]));
    this.#messages = kept(
      this.#messages,
      shown.flatMap(({ messages }) => messages),
    );
    return {
      messages: this.#messages,
      status: loading === 'loaded' ? statusOf(turns) : loading,
      ...(error && { error }),
      waiting: shown.filter(({ exchange }) => exchange.isWaiting).length,
      hasOlder: history.hasOlder,
      connection,
    };
  }

  #show(exchange: Exchange): Shown {
    const known = this.#shown.get(keyOf(exchange));
    if (known && isSame(known.exchange, exchange)) return { ...known, exchange };
    return { exchange, messages: showExchange(exchange) };
  }
}

const keyOf = ({ human, ai, requestId }: Exchange): string => human?.id ?? ai?.id ?? requestId;

const isSame = (a: Exchange, b: Exchange): boolean =>
  a.human === b.human &&
  a.ai === b.ai &&
  a.isWaiting === b.isWaiting &&
  (a.live === b.live || isDropped(a.live, b.live));

/** A turn that has ended is shown as before once nothing but its messages is kept. */
const isDropped = (before: LiveTurn | undefined, now: LiveTurn | undefined): boolean =>
  now === undefined && before?.phase === 'ended';

/** The list there was, when the new one holds the same. */
function kept<T>(before: readonly T[], now: readonly T[]): readonly T[] {
  const isSameList = now.length === before.length && now.every((each, i) => each === before[i]);
  return isSameList ? before : now;
}

function statusOf(turns: readonly LiveTurn[]): ChatState['status'] {
  const open = turns.filter(({ phase }) => phase === 'open');
  if (turns.some(({ phase }) => phase === 'rejoining')) return 'rejoining';
  if (open.some(({ turn }) => turn.runId)) return 'running';
  return open.length > 0 ? 'sending' : 'ready';
}
