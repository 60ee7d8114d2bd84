import type { RoomState } from '@sibyl/plugin-kit';
import type { JsonObject } from '@sibyl/protocol';
import type { Kysely } from 'kysely';
import { prepareQuery, type StoreContext } from './database.js';
import type { Schema } from './schema/index.js';

interface RoomKey {
  readonly owner: string;
  readonly oracleDid: string;
}

/** The room of each user with each oracle; preferences and sessions belong to it. */
export class RoomStore {
  private readonly context: StoreContext;

  constructor(context: StoreContext) {
    this.context = context;
  }

  /** The id of the user's room with this oracle, created on first use. */
  async getRoom(key: RoomKey): Promise<string> {
    const { database } = this.context;
    const { rows } = await findRoom(database.tables, key);
    return rows[0]?.id ?? database.write((tables) => findOrCreateRoom(tables, key, this.context));
  }
}

/** Finds or creates a room inside a unit of work; concurrent calls get the same room. */
export async function findOrCreateRoom(
  tables: Kysely<Schema>,
  key: RoomKey,
  { newId, clock }: StoreContext,
): Promise<string> {
  const { rows } = await findRoom(tables, key);
  if (rows[0] !== undefined) return rows[0].id;
  const room = { id: newId(), owner: key.owner, oracle_did: key.oracleDid, created_at: clock() };
  const { id } = await tables
    .insertInto('rooms')
    .values(room)
    // Updating the row makes `returning` work also if it exists.
    .onConflict((c) => c.columns(['owner', 'oracle_did']).doUpdateSet({ owner: key.owner }))
    .returning('id')
    .executeTakeFirstOrThrow();
  return id;
}

const findRoom = prepareQuery((tables, { owner, oracleDid }: RoomKey) =>
  tables
    .selectFrom('rooms')
    .select('id')
    .where('owner', '=', owner)
    .where('oracle_did', '=', oracleDid),
);

/** State of a room rather than of a session, such as preferences. */
export class RoomStateStore {
  private readonly context: StoreContext;
  private readonly rooms: RoomStore;

  constructor(context: StoreContext, rooms: RoomStore) {
    this.context = context;
    this.rooms = rooms;
  }

  /** The state of the rooms that users have with one oracle. */
  of(oracleDid: string): RoomState {
    return {
      read: async ({ owner, roomId: known }, key) => {
        const roomId = known ?? (await this.rooms.getRoom({ owner, oracleDid }));
        const { rows } = await findState(this.context.database.tables, { owner, roomId, key });
        return parseData(rows[0]);
      },
      update: async ({ owner, roomId }, key, change) => {
        const room = roomId ?? (await this.rooms.getRoom({ owner, oracleDid }));
        return this.update([owner, room, key], change);
      },
    };
  }

  private update(state: StateKey, change: Change): Promise<JsonObject> {
    const [owner, room_id, key] = state;
    const updated_at = this.context.clock();
    return this.context.database.write(async (tables) => {
      // The upsert locks the row, so its data does not change until the update.
      const row = await tables
        .insertInto('room_state')
        .values({ owner, room_id, key, data: null, updated_at })
        .onConflict((c) => c.columns(['owner', 'room_id', 'key']).doUpdateSet({ updated_at }))
        .returning('data')
        .executeTakeFirstOrThrow();
      const data = change(parseData(row));
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

const findState = prepareQuery(
  (tables, { owner, roomId, key }: Readonly<Record<'owner' | 'roomId' | 'key', string>>) =>
    tables
      .selectFrom('room_state')
      .select('data')
      .where('owner', '=', owner)
      .where('room_id', '=', roomId)
      .where('key', '=', key),
);

type StateKey = readonly [owner: string, roomId: string, key: string];
type Change = Parameters<RoomState['update']>[2];

function parseData(row: { readonly data: string | null } | undefined): JsonObject | undefined {
  return row?.data ? JSON.parse(row.data) : undefined;
}

/**
 * The sessions and preferences of a sub-user are in a separate room, which names them. Ids of other rooms begin otherwise: the
 * host's are UUIDs, those of Matrix begin with `!`.
 */
const PREFIX = 'sub-user:';

export const toSubUserRoom = (subUser: string): string => PREFIX + subUser;

/** The sub-user that a session belongs to; undefined for the user's own. */
export const findSubUser = ({ roomId }: { readonly roomId: string }): string | undefined =>
  roomId.startsWith(PREFIX) ? roomId.slice(PREFIX.length) : undefined;
