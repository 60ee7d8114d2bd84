import type { StoreContext } from '../database/store-context.js';

export interface PreferencesKey {
  readonly owner: string;
  readonly roomId: string;
}

export interface Preferences {
  readonly data: Readonly<Record<string, unknown>>;
  readonly updatedAt: number;
}

export interface PreferencesChange extends PreferencesKey {
  /** Fields to set; null clears a field, undefined leaves it. */
  readonly changes: Readonly<Record<string, unknown>>;
}

/** What a user prefers in a room (contract B6). */
export class PreferenceStore {
  readonly #context: StoreContext;

  constructor(context: StoreContext) {
    this.#context = context;
  }

  async get({ owner, roomId }: PreferencesKey): Promise<Preferences | undefined> {
    const row = await this.#context.database.tables
      .selectFrom('preferences')
      .select(['data', 'updated_at'])
      .where('owner', '=', owner)
      .where('room_id', '=', roomId)
      .executeTakeFirst();
    return row && { data: JSON.parse(row.data), updatedAt: row.updated_at };
  }

  /** Changes that arrive together are all kept. */
  merge({ owner, roomId, changes }: PreferencesChange): Promise<Preferences> {
    const updatedAt = this.#context.clock();
    return this.#context.database.write(async (tables) => {
      // The update locks the row, so what it returns stays current until the data is written.
      const row = await tables
        .insertInto('preferences')
        .values({ owner, room_id: roomId, data: '{}', updated_at: updatedAt })
        .onConflict((c) => c.columns(['owner', 'room_id']).doUpdateSet({ updated_at: updatedAt }))
        .returning('data')
        .executeTakeFirstOrThrow();
      const data = applyChanges(JSON.parse(row.data), changes);
      await tables
        .updateTable('preferences')
        .set({ data: JSON.stringify(data) })
        .where('owner', '=', owner)
        .where('room_id', '=', roomId)
        .execute();
      return { data, updatedAt };
    });
  }
}

function applyChanges(
  data: Preferences['data'],
  changes: PreferencesChange['changes'],
): Preferences['data'] {
  const given = Object.entries(changes).filter(([, value]) => value !== undefined);
  const merged = Object.entries({ ...data, ...Object.fromEntries(given) });
  return Object.fromEntries(merged.filter(([, value]) => value !== null));
}
