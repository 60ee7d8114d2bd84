import { prepared } from '../database/prepared.js';
import type { StoreContext } from '../database/store-context.js';
import type { SessionKey } from '../sessions/session-store.js';
import { appendMessage, type NewMessage } from './append-message.js';
import { type Message, toMessage } from './message.js';
import { type PageRequest, type PageResult, readPage } from './message-page.js';

export interface MessageListRequest {
  readonly owner: string;
  readonly sessionId: string;
  /** Leaves out later turns, as a turn must not see what waits behind it. */
  readonly throughTurn?: number | undefined;
}

const listMessages = prepared(
  (tables, { owner, sessionId, throughTurn }: SessionKey & { readonly throughTurn: number }) =>
    tables
      .selectFrom('messages')
      .selectAll()
      .where('session_id', '=', sessionId)
      .where('owner', '=', owner)
      .where('turn', '<=', throughTurn)
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

  /** Oldest first. */
  async list({ owner, sessionId, throughTurn }: MessageListRequest): Promise<readonly Message[]> {
    const { rows } = await listMessages(this.#context.database.tables, {
      owner,
      sessionId,
      throughTurn: throughTurn ?? Number.MAX_SAFE_INTEGER,
    });
    return rows.map(toMessage);
  }

  /** A page of whole turns before or after a message, by default the newest. */
  page(request: PageRequest): Promise<PageResult> {
    return this.#context.database.read((tables) => readPage(tables, request));
  }
}
