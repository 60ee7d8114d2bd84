import { prepared } from '../database/prepared.js';
import type { StoreContext } from '../database/store-context.js';
import type { SessionKey } from '../sessions/session-store.js';
import { appendMessage, type NewMessage } from './append-message.js';
import { type Message, toMessage } from './message.js';
import { type PageRequest, type PageResult, readPage } from './message-page.js';
import { firstOfNewest, readSizes, spansOf, type TurnSpan } from './turn-sizes.js';

export interface RecentRequest extends SessionKey {
  /** Leaves out later turns, as a turn must not see what waits behind it. */
  readonly throughTurn: number;
  /** How much to read at least, if there is as much. */
  readonly bytes: number;
}

/** What a reader of all messages holds at a time. */
const PAGE_BYTES = 128 * 1024;

const listMessages = prepared((tables, { owner, sessionId, first, last }: SessionKey & TurnSpan) =>
  tables
    .selectFrom('messages')
    .selectAll()
    .where('session_id', '=', sessionId)
    .where('owner', '=', owner)
    .where('turn', '>=', first)
    .where('turn', '<=', last)
    .orderBy('turn')
    .orderBy('seq'),
);

/** The messages of each session, in the order of their turns (contract B3). */
export class MessageStore {
  readonly #context: StoreContext;

  constructor(context: StoreContext) {
    this.#context = context;
  }

  /** Undefined if the owner has no such session. */
  append(message: NewMessage): Promise<Message | undefined> {
    return this.#context.database.write((tables) => appendMessage(tables, message, this.#context));
  }

  async find(key: {
    readonly owner: string;
    readonly messageId: string;
  }): Promise<Message | undefined> {
    const row = await this.#context.database.tables
      .selectFrom('messages')
      .selectAll()
      .where('id', '=', key.messageId)
      .where('owner', '=', key.owner)
      .executeTakeFirst();
    return row && toMessage(row);
  }

  /** All of a session, oldest first, a part at a time: together they may not fit into memory. */
  async *pages({ owner, sessionId }: SessionKey): AsyncGenerator<readonly Message[]> {
    const all = { owner, sessionId, throughTurn: Number.MAX_SAFE_INTEGER };
    const sizes = await readSizes(this.#context.database.tables, all);
    for (const span of spansOf(sizes, PAGE_BYTES)) yield this.#list({ owner, sessionId }, span);
  }

  /** The newest turns, oldest first: less than twice the `bytes` asked for, and the turn where they begin. */
  async recent({
    owner,
    sessionId,
    throughTurn,
    bytes,
  }: RecentRequest): Promise<readonly Message[]> {
    const { tables } = this.#context.database;
    const sizes = await readSizes(tables, { owner, sessionId, throughTurn });
    const span = { first: firstOfNewest(sizes, bytes), last: throughTurn };
    return this.#list({ owner, sessionId }, span);
  }

  /** A page of whole turns before or after a message, by default the newest. */
  page(request: PageRequest): Promise<PageResult> {
    return this.#context.database.read((tables) => readPage(tables, request));
  }

  async #list(key: SessionKey, span: TurnSpan): Promise<readonly Message[]> {
    const { rows } = await listMessages(this.#context.database.tables, { ...key, ...span });
    return rows.map(toMessage);
  }
}
