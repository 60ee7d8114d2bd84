import type { Kysely } from 'kysely';
import type { Schema } from '../database/schema.js';
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
  // Locks the session, so that numbers are given out one at a time in the order of storing.
  const place = await tables
    .updateTable('sessions')
    .set((e) => ({
      last_seq: e('last_seq', '+', 1),
      last_turn: e('last_turn', '+', opensTurn),
      last_updated_at: now,
    }))
    .where('id', '=', request.sessionId)
    .where('owner', '=', request.owner)
    .returning(['last_seq', 'last_turn'])
    .executeTakeFirst();
  if (place === undefined) return undefined;
  const message = {
    ...request,
    id: request.id ?? newId(),
    seq: place.last_seq,
    turn: opensTurn ? place.last_turn : (turn ?? place.last_turn),
    createdAt: now,
  };
  await tables.insertInto('messages').values(toMessageRow(message)).execute();
  return message;
}
