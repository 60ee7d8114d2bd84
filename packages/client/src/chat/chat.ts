import type {
  Attachment,
  ErrorFrame,
  Message,
  MessagePage,
  PageMessages,
  RenderComponentEvent,
  SendMessage,
  WarningFrame,
} from '@sibyl/protocol';
import type { OracleClientError } from '../errors.js';
import type { ConnectionState } from '../events/reconnecting-socket.js';
import type { OracleClient } from '../oracle-client.js';
import type { AnswerPart, Call } from '../turns/turn.js';
import type { MessageToSend } from '../turns/turns.js';

/** What only stored messages have: their place among the paths of the session, and their details. */
export const STORED_FIELDS = ['parentId', 'siblings', 'model', 'usage', 'feedback'] as const;

/** A message as a page shows it, stored or in progress. */
export interface ChatMessage extends Readonly<Pick<Message, (typeof STORED_FIELDS)[number]>> {
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
  /** Whether messages after the loaded ones are not loaded: the reader is far above the end. */
  readonly hasNewer: boolean;
  /** The state of the session's socket. */
  readonly connection: ConnectionState;
}

/** A session as one list of history and live turns. Its commands do not reject: errors are in the state. */
export interface Chat {
  readonly sessionId: string;
  getState(): ChatState;
  /** Calls the listener after every change; returns a function that removes it. */
  subscribe(listener: () => void): () => void;
  /** Resolves when the turn has ended, or could not be started. */
  send(message: MessageToSend): Promise<void>;
  /** Sends another text in place of a message, on a new path; takes the `messageId`. */
  edit(messageId: string, text: string): Promise<void>;
  /** Asks for another answer; takes the `messageId` of the answer or the question. */
  regenerate(messageId: string): Promise<void>;
  /** Shows the path through another message, such as a sibling. */
  show(messageId: string): Promise<void>;
  /** Removes a message that the server has not accepted, and stops sending it; takes its `requestId`. */
  discard(requestId: string): void;
  /** Takes back a message that waits; takes its `requestId`. Returns whether it was taken back. */
  withdraw(requestId: string): Promise<boolean>;
  /** Cancels the active turn; returns whether there was one that could be cancelled. */
  abort(): Promise<boolean>;
  loadOlder(): Promise<void>;
  loadNewer(): Promise<void>;
  /** Goes back to the end, if newer messages are not loaded. */
  showNewest(): Promise<void>;
  /** Loads the messages around one, also on another path; returns whether there is such a message. */
  reveal(messageId: string): Promise<boolean>;
  /** Reads the history again and follows the active turn. */
  refresh(): Promise<void>;
  close(): void;
}

const PAGE_TURNS = 20;
/** The server's limit. */
const MAX_PAGE_TURNS = 100;
/** Loaded turns: a page that shows all of a long session would become slow. */
const MAX_TURNS = 120;

/** The loaded part of a session's stored messages: up to the newest, unless the reader is far above the end. */
export class History {
  private readonly client: OracleClient;
  private readonly sessionId: string;
  private stored: readonly Message[] = [];
  private hasMore = false;
  private isDetached = false;
  /** What was loaded before `makeRoom`, until the messages are read again. */
  private whole: LoadedMessages | undefined;

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

  get hasNewer(): boolean {
    return this.isDetached;
  }

  /** Whether `makeRoom` has hidden messages that were not read again. */
  get hasHidden(): boolean {
    return this.whole !== undefined;
  }

  find(messageId: string): Message | undefined {
    return this.stored.find(({ id }) => id === messageId);
  }

  /** The question of an answer, or the question itself. */
  findQuestion(messageId: string | undefined): string | undefined {
    const message = messageId === undefined ? undefined : this.find(messageId);
    return message?.type === 'ai' ? message.parentId : message?.id;
  }

  hasTurn(requestId: string): boolean {
    return this.stored.some((message) => message.requestId === requestId);
  }

  /** Hides what a new message leaves behind: what followed the one it continues from, or a part far above the end. */
  makeRoom({ parentId, regenerate }: Pick<SendMessage, 'parentId' | 'regenerate'>): void {
    if (regenerate === undefined && parentId === undefined) {
      if (this.isDetached) this.hideAfter(0);
      return;
    }
    const last = this.findQuestion(regenerate) ?? parentId;
    const end = this.stored.findIndex(({ id }) => id === last);
    if (end < 0 && last !== null) return;
    this.hideAfter(end + 1);
  }

  /** Shows what `makeRoom` has hidden. */
  showHidden(): void {
    if (this.whole) this.replace(this.whole.messages, this.whole);
  }

  /** Reads new messages, and the loaded ones again, as far as one page goes; false if that path is not wanted. */
  async refresh(
    signal: AbortSignal,
    isWanted: (path: readonly Message[]) => boolean,
  ): Promise<boolean> {
    const limit = Math.min(Math.max(countTurns(this.stored), PAGE_TURNS), MAX_PAGE_TURNS);
    if (this.isDetached && (await this.refreshDetached({ limit, signal }))) return true;
    const page = await this.page({ limit, signal });
    if (!isWanted(page.messages)) return false;
    const overlap = this.stored.findIndex(({ id }) => id === page.messages[0]?.id);
    const newest = reuseUnchanged(this.stored, page.messages);
    if (overlap > 0) this.replace([...this.stored.slice(0, overlap), ...newest], this);
    else this.replace(newest, page);
    return true;
  }

  async showNewest(signal: AbortSignal): Promise<void> {
    const page = await this.page({ limit: PAGE_TURNS, signal });
    this.replace(page.messages, page);
  }

  /** Loads the messages before and after one of the active path; false if it is on another path. */
  async loadAround(messageId: string, signal: AbortSignal): Promise<boolean> {
    const limit = PAGE_TURNS;
    const older = await this.findPage({ before: messageId, limit, signal });
    const newer = await this.findPage({ after: messageId, limit, signal });
    if (!older || !newer) return false;
    const { hasOlder } = older;
    const { hasNewer } = newer;
    this.replace(joinPages(older.messages, newer.messages), { hasOlder, hasNewer });
    return true;
  }

  async loadOlder(signal: AbortSignal): Promise<void> {
    const before = this.stored[0]?.id;
    if (!this.hasMore || before === undefined) return;
    const page = await this.page({ before, signal });
    // Another call has changed the messages in the meantime.
    if (this.stored[0]?.id !== before) return;
    const joined = joinPages(page.messages, this.stored);
    const end = findTurn(joined, MAX_TURNS);
    const hasNewer = this.isDetached || end < joined.length;
    this.replace(joined.slice(0, end), { hasOlder: page.hasOlder, hasNewer });
  }

  async loadNewer(signal: AbortSignal): Promise<void> {
    const after = this.stored.at(-1)?.id;
    if (!this.isDetached || after === undefined) return;
    const page = await this.page({ after, signal });
    if (this.stored.at(-1)?.id !== after) return;
    const joined = joinPages(this.stored, page.messages);
    const start = findTurn(joined, countTurns(joined) - MAX_TURNS);
    const hasOlder = this.hasMore || start > 0;
    this.replace(joined.slice(start), { hasOlder, hasNewer: page.hasNewer });
  }

  /** Reads the loaded messages again; false if they are not on the active path any more. */
  private async refreshDetached(request: PageRequest): Promise<boolean> {
    const page = await this.findPage({ ...request, after: this.stored[0]?.id ?? '' });
    if (!page) return false;
    const changed = new Map(
      reuseUnchanged(this.stored, page.messages).map((each) => [each.id, each]),
    );
    this.stored = this.stored.map((message) => changed.get(message.id) ?? message);
    return true;
  }

  private page(request: PageRequest): Promise<MessagePage> {
    return this.client.messages.page(this.sessionId, request);
  }

  /** Undefined if the cursor is not on the active path. */
  private async findPage(request: PageRequest): Promise<MessagePage | undefined> {
    try {
      return await this.page(request);
    } catch (error) {
      if ((error as Partial<OracleClientError>).code === 'validation_failed') return undefined;
      throw error;
    }
  }

  private hideAfter(count: number): void {
    const { messages, hasOlder, hasNewer } = this;
    this.whole ??= { messages, hasOlder, hasNewer };
    this.stored = this.stored.slice(0, count);
    this.hasMore &&= count > 0;
    this.isDetached = false;
  }

  private replace(
    messages: readonly Message[],
    { hasOlder, hasNewer }: Pick<MessagePage, 'hasOlder' | 'hasNewer'>,
  ): void {
    this.stored = messages;
    this.hasMore = hasOlder;
    this.isDetached = hasNewer;
    this.whole = undefined;
  }
}

type LoadedMessages = Pick<History, 'messages' | 'hasOlder' | 'hasNewer'>;

type PageRequest = Partial<PageMessages> & { readonly signal: AbortSignal };

const countTurns = (messages: readonly Message[]): number =>
  messages.filter(({ type }) => type === 'human').length;

/** Where the turn with this index begins; the end if there are fewer. */
function findTurn(messages: readonly Message[], index: number): number {
  if (index <= 0) return 0;
  let turns = 0;
  const found = messages.findIndex(({ type }) => type === 'human' && turns++ === index);
  return found < 0 ? messages.length : found;
}

/** Pages contain whole turns, so that two of them may overlap. */
function joinPages(earlier: readonly Message[], later: readonly Message[]): readonly Message[] {
  const known = new Set(earlier.map(({ id }) => id));
  return [...earlier, ...later.filter(({ id }) => !known.has(id))];
}

/** Keeps the objects of messages that have not changed. */
function reuseUnchanged(before: readonly Message[], now: readonly Message[]): readonly Message[] {
  const known = new Map(before.map((message) => [message.id, message]));
  return now.map((message) => {
    const old = known.get(message.id);
    return old && JSON.stringify(old) === JSON.stringify(message) ? old : message;
  });
}
