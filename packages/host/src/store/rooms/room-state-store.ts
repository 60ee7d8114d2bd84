import type { RoomState } from '@sibyl/plugin-kit';
import type { JsonObject } from '@sibyl/protocol';
import { prepared } from '../database/prepared.js';
import type { StoreContext } from '../database/store-context.js';
import type { RoomStore } from './room-store.js';

/** What belongs to a user's room rather than to a session, such as preferences (contract B6). */
export class RoomStateStore {
  readonly #context: StoreContext;
  readonly #rooms: RoomStore;

  constructor(context: StoreContext, rooms: RoomStore) {
    this.#context = context;
    this.#rooms = rooms;
  }

  /** The state of the rooms that users have with one oracle. */
  of(oracleDid: string): RoomState {
    return {
      read: async ({ owner, roomId }, key) =>
        this.#read([owner, roomId ?? (await this.#rooms.roomOf({ owner, oracleDid })), key]),
      update: async ({ owner, roomId }, key, change) => {
        const room = roomId ?? (await this.#rooms.roomOf({ owner, oracleDid }));
        return this.#update([owner, room, key], change);
      },
    };
  }

  async #read([owner, roomId, key]: Place): Promise<JsonObject | undefined> {
    const { rows } = await findState(this.#context.database.tables, { owner, roomId, key });
    return dataOf(rows[0]);
  }

  #update(place: Place, change: Change): Promise<JsonObject> {
    const [owner, room_id, key] = place;
    const updated_at = this.#context.clock();
    return this.#context.database.write(async (tables) => {
      // The upsert locks the row, so what it returns stays current until the change is written.
      const row = await tables
        .insertInto('room_state')
        .values({ owner, room_id, key, data: null, updated_at })
        .onConflict((c) => c.columns(['owner', 'room_id', 'key']).doUpdateSet({ updated_at }))
        .returning('data')
        .executeTakeFirstOrThrow();
      const data = change(dataOf(row));
      await tables
        .updateTable('room_state')
        .set({ data: JSON.stringify(data) })
        .where('owner', '=', owner)
        .where('room_id', '=', room_id)
        .where('key', '=', key)
        .execute();
      return data;
    });
  }
}

const findState = prepared(
  (tables, { owner, roomId, key }: Readonly<Record<'owner' | 'roomId' | 'key', string>>) =>
    tables
      .selectFrom('room_state')
      .select('data')
      .where('owner', '=', owner)
      .where('room_id', '=', roomId)
      .where('key', '=', key),
);

type Place = readonly [owner: string, roomId: string, key: string];
type Change = Parameters<RoomState['update']>[2];

function dataOf(row: { readonly data: string | null } | undefined): JsonObject | undefined {
  return row?.data ? JSON.parse(row.data) : undefined;
}
