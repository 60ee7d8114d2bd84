import type { Message } from '@sibyl/protocol';
import type { OracleClient } from '../oracle-client.js';

const PAGE_TURNS = 20;
const MAX_TURNS = 100;

/** The loaded part of a session's stored messages, up to the newest. */
export class History {
  private readonly client: OracleClient;
  private readonly sessionId: string;
  private stored: readonly Message[] = [];
  private before: string | null = null;
  private hasMore = false;

  constructor(client: OracleClient, sessionId: string) {
    this.client = client;
    this.sessionId = sessionId;
  }

  get messages(): readonly Message[] {
    return this.stored;
  }

  get hasOlder(): boolean {
    return this.hasMore;
  }

  /** Reads new messages, and the loaded ones again, as far as one page goes. */
  async loadNewest(signal: AbortSignal): Promise<void> {
    const loaded = this.stored.filter(({ type }) => type === 'human').length;
    const limit = Math.min(Math.max(loaded, PAGE_TURNS), MAX_TURNS);
    const page = await this.client.messages.page(this.sessionId, { limit, signal });
    const overlap = this.stored.findIndex(({ id }) => id === page.messages[0]?.id);
    const newest = reuseUnchanged(this.stored, page.messages);
    if (overlap > 0) {
      this.stored = [...this.stored.slice(0, overlap), ...newest];
      return;
    }
    this.stored = newest;
    this.before = page.prevCursor;
    this.hasMore = page.hasOlder;
  }

  async loadOlder(signal: AbortSignal): Promise<void> {
    const before = this.before;
    if (!this.hasMore || before === null) return;
    const page = await this.client.messages.page(this.sessionId, { before, signal });
    // Another call has loaded this page in the meantime.
    if (this.before !== before) return;
    this.stored = [...page.messages, ...this.stored];
    this.before = page.prevCursor;
    this.hasMore = page.hasOlder;
  }
}

/** Keeps the objects of messages that have not changed. */
function reuseUnchanged(before: readonly Message[], now: readonly Message[]): readonly Message[] {
  const known = new Map(before.map((message) => [message.id, message]));
  return now.map((message) => {
    const old = known.get(message.id);
    return old && JSON.stringify(old) === JSON.stringify(message) ? old : message;
  });
}
