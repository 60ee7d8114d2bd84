import type { RoomPlace, RoomState } from '@sibyl/plugin-kit';
import { type JsonObject, type PreferencesPatch, UserPreferences } from '@sibyl/protocol';

const KEY = 'user-preferences';

/** Keeps what a user prefers in a room. */
export class PreferenceKeeper {
  constructor(private readonly rooms: RoomState) {}

  async read(place: RoomPlace): Promise<UserPreferences> {
    return preferencesIn(await this.rooms.read(place, KEY));
  }

  /** What is absent stays, null clears; changes that arrive together are all kept. */
  async change(place: RoomPlace, patch: PreferencesPatch): Promise<UserPreferences> {
    const updatedAt = new Date().toISOString();
    const changed = await this.rooms.update(place, KEY, (current) => {
      const given = Object.entries(patch).filter(([, value]) => value !== undefined);
      const merged = { ...preferencesIn(current), ...Object.fromEntries(given), updatedAt };
      return Object.fromEntries(Object.entries(merged).filter(([, value]) => value !== null));
    });
    return preferencesIn(changed);
  }
}

const fields = Object.entries(UserPreferences.shape);

/** Field by field: a room may be kept where others write too, and one bad field must not cost the rest. */
function preferencesIn(stored: JsonObject = {}): UserPreferences {
  const sound = fields.flatMap(([name, schema]) => {
    const { data } = schema.safeParse(stored[name]);
    return data === undefined ? [] : [[name, data]];
  });
  return Object.fromEntries(sound);
}
