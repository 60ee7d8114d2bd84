import type { PluginContext, RoomPlace, RoomState } from '@sibyl/plugin-kit';
import type { JsonObject } from '@sibyl/protocol';
import { askMatrix, type Homeserver, MatrixError, segment } from '../homeserver.js';
import type { RoomDirectory } from './room-directory.js';

/** Reverse-domain, as Matrix asks of types that are not its own. */
const EVENT_TYPE = 'org.sibyl.room_state';

interface MatrixRoomStateParts {
  readonly homeserver: Homeserver;
  readonly rooms: RoomDirectory;
  readonly fetch: PluginContext['fetch'];
}

/** Keeps a room's state in the Matrix room itself, one state event a key. */
export class MatrixRoomState implements RoomState {
  readonly #parts: MatrixRoomStateParts;
  /** The last change of each place; Matrix has no compare-and-set, so changes wait for one another. */
  readonly #changes = new Map<string, Promise<unknown>>();

  constructor(parts: MatrixRoomStateParts) {
    this.#parts = parts;
  }

  async read(place: RoomPlace, key: string): Promise<JsonObject | undefined> {
    const { homeserver, fetch } = this.#parts;
    try {
      return await askMatrix<JsonObject>(homeserver, { path: await this.#path(place, key) }, fetch);
    } catch (error) {
      if (error instanceof MatrixError && error.status === 404) return undefined;
      throw error;
    }
  }

  async update(
    place: RoomPlace,
    key: string,
    change: (current: JsonObject | undefined) => JsonObject,
  ): Promise<JsonObject> {
    const id = JSON.stringify([place.owner, place.roomId, key]);
    const before = this.#changes.get(id) ?? Promise.resolve();
    const changed = before.catch(() => undefined).then(() => this.#change(place, key, change));
    this.#changes.set(id, changed);
    try {
      return await changed;
    } finally {
      if (this.#changes.get(id) === changed) this.#changes.delete(id);
    }
  }

  async #change(
    place: RoomPlace,
    key: string,
    change: (current: JsonObject | undefined) => JsonObject,
  ): Promise<JsonObject> {
    const { homeserver, fetch } = this.#parts;
    const body = change(await this.read(place, key));
    const path = await this.#path(place, key);
    await askMatrix(homeserver, { method: 'PUT', path, body }, fetch);
    return body;
  }

  async #path({ owner }: RoomPlace, key: string): Promise<string> {
    const roomId = await this.#parts.rooms.roomOf(owner);
    return `/rooms/${segment(roomId)}/state/${EVENT_TYPE}/${segment(key)}`;
  }
}
