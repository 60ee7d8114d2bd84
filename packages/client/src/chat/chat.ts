import type {
  Attachment,
  ErrorFrame,
  Message,
  RenderComponentEvent,
  SendMessage,
  WarningFrame,
} from '@sibyl/protocol';
import type { OracleClientError } from '../errors.js';
import type { ConnectionState } from '../events/reconnecting-socket.js';
import type { MessageToSend, OracleClient } from '../oracle-client.js';
import type { AnswerPart, Call } from '../turns/turn.js';

/** A message as a page shows it, stored or in progress. */
export interface ChatMessage {
  /** Stays the same while the chat is open, even after the message is stored. */
  readonly id: string;
  readonly type: Message['type'];
  readonly content: string;
  readonly createdAt: string;
  readonly requestId: string;
  readonly reasoning: string;
  readonly calls: readonly Call[];
  readonly components: readonly RenderComponentEvent[];
  /** What an answer consists of, in the order in which it happened. */
  readonly parts: readonly AnswerPart[];
  readonly attachments: readonly Attachment[];
  readonly warnings: readonly WarningFrame[];
  /** Why the turn failed or was interrupted, also after a reload. */
  readonly error?: ErrorFrame;
  /** Why a question with the status `failed` could not be sent. */
  readonly sendError?: OracleClientError;
  /** The id of the stored message. */
  readonly messageId?: string;
  /** The stored message that this one continues from. */
  readonly parentId?: string;
  /** All messages that continue from the same one, this one included, if there are others. */
  readonly siblings?: readonly string[];
  /**
   * Of a question: `sending`, `failed` if the server never received it, `waiting` while queued, or
   * `stored`. Of an answer: `running`, `stored`, `incomplete` if the turn was interrupted, or `failed`.
   */
  readonly status: 'sending' | 'waiting' | 'running' | 'stored' | 'incomplete' | 'failed';
}

export interface ChatState {
  /** Oldest first: the loaded history, then active and queued turns. */
  readonly messages: readonly ChatMessage[];
  readonly status: 'loading' | 'ready' | 'sending' | 'running' | 'rejoining' | 'failed';
  /** The error of the last request. A failed turn has its error in its message. */
  readonly error?: OracleClientError;
  /** The number of queued messages. */
  readonly waiting: number;
  readonly hasOlder: boolean;
  /** The state of the session's socket. */
  readonly connection: ConnectionState;
}

/** A session as one list of history and live turns. */
export interface Chat {
  readonly sessionId: string;
  getState(): ChatState;
  /** Calls the listener after every change; returns a function that removes it. */
  subscribe(listener: () => void): () => void;
  /** Resolves when the turn has ended; errors are in the state. */
  send(message: MessageToSend): Promise<void>;
  /** Sends another text in place of a message, on a new path; takes the `messageId`. */
  edit(messageId: string, text: string): Promise<void>;
  /** Asks for another answer; takes the `messageId` of the answer or the question. */
  regenerate(messageId: string): Promise<void>;
  /** Shows the path through another message, such as a sibling. */
  show(messageId: string): Promise<void>;
  /** Removes a message that could not be sent; takes its `requestId`. */
  discard(requestId: string): void;
  /** Takes back a message that waits; takes its `requestId`. */
  withdraw(requestId: string): Promise<void>;
  /** Cancels the active turn; returns whether there was one. */
  abort(): Promise<boolean>;
  loadOlder(): Promise<void>;
  /** Reads the history again and follows the active turn. */
  refresh(): Promise<void>;
  close(): void;
}

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

  find(messageId: string): Message | undefined {
    return this.stored.find(({ id }) => id === messageId);
  }

  /** Hides what a message leaves behind when it continues from an earlier one. */
  hideAfter({ parentId, regenerate }: Pick<SendMessage, 'parentId' | 'regenerate'>): void {
    if (regenerate === undefined && parentId === undefined) return;
    const target = regenerate === undefined ? undefined : this.find(regenerate);
    const last = target?.type === 'ai' ? target.parentId : (target?.id ?? parentId);
    const end = this.stored.findIndex(({ id }) => id === last);
    if (end >= 0 || last === null) this.stored = this.stored.slice(0, end + 1);
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
