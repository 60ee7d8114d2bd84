import type { Message } from '@sibyl/protocol';
import type { OracleClient } from '../oracle-client.js';

const PAGE_TURNS = 20;
const MOST_TURNS = 100;

/** What is loaded of a session's stored messages, from some point to the newest. */
export class History {
  readonly #client: OracleClient;
  readonly #sessionId: string;
  #messages: readonly Message[] = [];
  #before: string | null = null;
  #hasOlder = false;

  constructor(client: OracleClient, sessionId: string) {
    this.#client = client;
    this.#sessionId = sessionId;
  }

  get messages(): readonly Message[] {
    return this.#messages;
  }

  get hasOlder(): boolean {
    return this.#hasOlder;
  }

  /** Reads again what is loaded, as far as one page goes, and what is new. */
  async loadNewest(signal: AbortSignal): Promise<void> {
    const loaded = this.#messages.filter(({ type }) => type === 'human').length;
    const limit = Math.min(Math.max(loaded, PAGE_TURNS), MOST_TURNS);
    const page = await this.#client.messages.page(this.#sessionId, { limit, signal });
    const seam = this.#messages.findIndex(({ id }) => id === page.messages[0]?.id);
    const newest = unchanged(this.#messages, page.messages);
    if (seam > 0) {
      this.#messages = [...this.#messages.slice(0, seam), ...newest];
      return;
    }
    this.#messages = newest;
    this.#before = page.prevCursor;
    this.#hasOlder = page.hasOlder;
  }

  async loadOlder(signal: AbortSignal): Promise<void> {
    const before = this.#before;
    if (!this.#hasOlder || before === null) return;
    const page = await this.#client.messages.page(this.#sessionId, { before, signal });
    // Somebody else has loaded it meanwhile.
    if (this.#before !== before) return;
    this.#messages = [...page.messages, ...this.#messages];
    this.#before = page.prevCursor;
    this.#hasOlder = page.hasOlder;
  }
}

/** Messages read again; those that say what they said stay the same objects. */
function unchanged(before: readonly Message[], now: readonly Message[]): readonly Message[] {
  const known = new Map(before.map((message) => [message.id, message]));
  return now.map((message) => {
    const old = known.get(message.id);
    return old && JSON.stringify(old) === JSON.stringify(message) ? old : message;
  });
}
