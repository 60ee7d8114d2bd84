import { randomUUID } from 'node:crypto';
import type { JsonObject } from '@sibyl/protocol';
import type { RoomPlace, RoomState } from '../room-state.js';
import type { Blobs, Secrets, SessionState } from '../turn-context.js';

/** What the host would keep in its store, in memory. */
export class MemoryKeepers {
  readonly #kept = new Map<string, unknown>();

  readonly rooms: RoomState = {
    read: async (place, key) => copyOf(this.#kept.get(roomKey(place, key)) as JsonObject),
    update: async (place, key, change) => {
      const id = roomKey(place, key);
      const changed = change(copyOf(this.#kept.get(id) as JsonObject | undefined));
      this.#kept.set(id, copyOf(changed));
      return changed;
    },
  };

  sessionState(...place: readonly string[]): SessionState {
    const keyOf = (key: string) => JSON.stringify(['state', ...place, key]);
    return {
      get: async (key) => copyOf(this.#kept.get(keyOf(key))),
      set: async (key, value) => this.#set(keyOf(key), copyOf(value)),
    };
  }

  secrets(...place: readonly string[]): Secrets {
    const keyOf = (name: string) => JSON.stringify(['secret', ...place, name]);
    return {
      get: async (name) => this.#kept.get(keyOf(name)) as string | undefined,
      set: async (name, value) => this.#set(keyOf(name), value),
    };
  }

  blobs(...place: readonly string[]): Blobs {
    const keyOf = (id: string) => JSON.stringify(['blob', ...place, id]);
    return {
      put: async (blob) => {
        const id = randomUUID();
        this.#set(keyOf(id), blob);
        return id;
      },
      get: async (id) => this.#kept.get(keyOf(id)) as Awaited<ReturnType<Blobs['get']>>,
      delete: async (id) => this.#set(keyOf(id), undefined),
    };
  }

  #set(key: string, value: unknown): void {
    if (value === undefined) this.#kept.delete(key);
    else this.#kept.set(key, value);
  }
}

const roomKey = ({ owner, roomId = ownRoomOf(owner) }: RoomPlace, key: string) =>
  JSON.stringify(['room', owner, roomId, key]);

/** The user's own room with the oracle. */
export const ownRoomOf = (owner: string) => `room of ${owner}`;

/** As it comes back from a store: JSON, and nobody else's object. */
function copyOf<T>(value: T): T {
  return value === undefined ? value : JSON.parse(JSON.stringify(value));
}
