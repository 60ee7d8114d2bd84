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
  readonly logger: PluginContext['logger'];
}

/** Changes that may wait: of one place, and of all of them. */
const MAX_WAITING_PER_PLACE = 20;
const MAX_WAITING = 1000;

interface Changes {
  /** Settles with the last change. */
  readonly last: Promise<unknown>;
  readonly count: number;
}

/** Keeps a room's state in the Matrix room itself, one state event a key. */
export class MatrixRoomState implements RoomState {
  readonly #parts: MatrixRoomStateParts;
  /** The changes of each place; Matrix has no compare-and-set, so changes wait for one another. */
  readonly #changes = new Map<string, Changes>();
  #waiting = 0;

  constructor(parts: MatrixRoomStateParts) {
    this.#parts = parts;
  }

  async read(place: RoomPlace, key: string): Promise<JsonObject | undefined> {
    const { homeserver, fetch } = this.#parts;
    try {
      return await askMatrix<JsonObject>(homeserver, { path: await this.#path(place, key) }, fetch);
    } catch (error) {
      if (error instanceof MatrixError && error.status === 404) return undefined;
      this.#parts.logger.warn({ err: error }, 'state of a Matrix room not read');
      throw error;
    }
  }

  async update(
    place: RoomPlace,
    key: string,
    change: (current: JsonObject | undefined) => JsonObject,
  ): Promise<JsonObject> {
    const id = JSON.stringify([place.owner, place.roomId, key]);
    const { last, count } = this.#changes.get(id) ?? { last: Promise.resolve(), count: 0 };
    if (count >= MAX_WAITING_PER_PLACE || this.#waiting >= MAX_WAITING) throw new Error(BUSY);
    const changed = last.catch(() => undefined).then(() => this.#change(place, key, change));
    this.#changes.set(id, { last: changed, count: count + 1 });
    this.#waiting += 1;
    try {
      return await changed;
    } finally {
      this.#waiting -= 1;
      this.#conclude(id);
    }
  }

  #conclude(id: string): void {
    const { last, count } = this.#changes.get(id) ?? { last: undefined, count: 0 };
    if (last && count > 1) this.#changes.set(id, { last, count: count - 1 });
    else this.#changes.delete(id);
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

const BUSY = 'Too many changes wait for the homeserver; try again later';
