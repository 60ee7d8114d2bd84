import type { Kysely } from 'kysely';
import { prepared } from '../database/prepared.js';
import type { Schema } from '../database/schema.js';
import type { StoreContext } from '../database/store-context.js';

export interface RoomKey {
  readonly owner: string;
  readonly oracleDid: string;
}

/** The room each user has with each oracle; preferences and sessions hang on it. */
export class RoomStore {
  readonly #context: StoreContext;

  constructor(context: StoreContext) {
    this.#context = context;
  }

  /** The id of the user's own room with this oracle, made on first use. */
  async roomOf(key: RoomKey): Promise<string> {
    const { database } = this.#context;
    const { rows } = await findRoom(database.tables, key);
    return rows[0]?.id ?? database.write((tables) => obtainRoom(tables, key, this.#context));
  }
}

/** Finds or makes a room inside a unit; of two that make it at once, both get the same. */
export async function obtainRoom(
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
    // Writing back what is there makes the row come back whoever was first.
    .onConflict((c) => c.columns(['owner', 'oracle_did']).doUpdateSet({ owner: key.owner }))
    .returning('id')
    .executeTakeFirstOrThrow();
  return id;
}

const findRoom = prepared((tables, { owner, oracleDid }: RoomKey) =>
  tables
    .selectFrom('rooms')
    .select('id')
    .where('owner', '=', owner)
    .where('oracle_did', '=', oracleDid),
);
