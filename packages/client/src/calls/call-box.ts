import type { ActionCallEvent, BrowserToolCallEvent } from '@sibyl/protocol';

/** The most that is kept of calls nobody here has asked for, and of ids of those that were. */
const MOST_WAITING = 100;
const MOST_KNOWN = 1000;

/** A call of something the page offers. */
export type PageCall =
  | { readonly kind: 'tool'; readonly call: BrowserToolCallEvent }
  | { readonly kind: 'action'; readonly call: ActionCallEvent };

/** The calls that come in for a session, each once, until somebody attends the turn they are of. */
export class CallBox {
  readonly #known = new Set<string>();
  readonly #takers = new Map<string, (call: PageCall) => void>();
  #waiting: PageCall[] = [];

  put(incoming: PageCall): void {
    const { toolCallId, requestId } = incoming.call;
    if (this.#known.has(toolCallId)) return;
    this.#remember(toolCallId);
    const take = this.#takers.get(requestId);
    // A page that was reloaded is called before it knows of the turn.
    if (!take) this.#waiting = [...this.#waiting, incoming].slice(-MOST_WAITING);
    take?.(incoming);
  }

  /** Hands over the calls of a turn, also those that came before; returns what ends it. */
  attend(requestId: string, take: (call: PageCall) => void): () => void {
    this.#takers.set(requestId, take);
    const isOfTurn = ({ call }: PageCall) => call.requestId === requestId;
    const early = this.#waiting.filter(isOfTurn);
    this.#waiting = this.#waiting.filter((each) => !isOfTurn(each));
    for (const each of early) take(each);
    return () => {
      if (this.#takers.get(requestId) === take) this.#takers.delete(requestId);
    };
  }

  #remember(toolCallId: string): void {
    this.#known.add(toolCallId);
    const [oldest] = this.#known;
    if (this.#known.size > MOST_KNOWN && oldest !== undefined) this.#known.delete(oldest);
  }
}
