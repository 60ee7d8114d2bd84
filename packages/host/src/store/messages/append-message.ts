import type { Kysely } from 'kysely';
import { prepared } from '../database/prepared.js';
import type { MessageRow, Schema } from '../database/schema.js';
import type { StoreContext } from '../database/store-context.js';
import { type Message, type MessageBody, toMessageRow } from './message.js';

/** A message on its way into a session. */
export interface NewMessage extends MessageBody {
  readonly owner: string;
  readonly sessionId: string;
  readonly id?: string | undefined;
  /** The turn an answer belongs to; default the latest. A user message always opens a new one. */
  readonly turn?: number | undefined;
}

/** Stores a message inside a unit; undefined if the owner has no such session. */
export async function appendMessage(
  tables: Kysely<Schema>,
  { turn, ...request }: NewMessage,
  { clock, newId }: StoreContext,
): Promise<Message | undefined> {
  const now = clock();
  const opensTurn = request.type === 'human' ? 1 : 0;
  const { owner, sessionId } = request;
  const { rows } = await takePlace(tables, { owner, sessionId, opensTurn, now });
  const [place] = rows;
  if (place === undefined) return undefined;
  const message = {
    ...request,
    id: request.id ?? newId(),
    seq: place.last_seq,
    turn: opensTurn ? place.last_turn : (turn ?? place.last_turn),
    createdAt: now,
  };
  await insertMessage(tables, toMessageRow(message));
  return message;
}

interface Place {
  readonly owner: string;
  readonly sessionId: string;
  readonly opensTurn: number;
  readonly now: number;
}

/** Locks the session, so that numbers are given out one at a time in the order of storing. */
const takePlace = prepared((tables, { owner, sessionId, opensTurn, now }: Place) =>
  tables
    .updateTable('sessions')
    .set((e) => ({
      last_seq: e('last_seq', '+', 1),
      last_turn: e('last_turn', '+', opensTurn),
      last_updated_at: now,
    }))
    .where('id', '=', sessionId)
    .where('owner', '=', owner)
    .returning(['last_seq', 'last_turn']),
);

export const insertMessage = prepared((tables, row: MessageRow) =>
  tables.insertInto('messages').values(row),
);
