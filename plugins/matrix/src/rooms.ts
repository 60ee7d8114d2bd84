import { createHash } from 'node:crypto';
import type { PluginContext, PluginDatabase, RoomPlace, RoomState } from '@sibyl/plugin-kit';
import type { JsonObject } from '@sibyl/protocol';
import { askMatrix, baseUrlOf, type Homeserver, MatrixError, segment } from './homeserver.js';

export interface MatrixTables {
  matrix_rooms: { owner: string; room_id: string; user_id: string | null };
}

interface RoomDirectoryParts {
  readonly database: PluginDatabase<MatrixTables>;
  readonly homeserver: Homeserver;
  readonly oracle: PluginContext['oracle'];
  readonly fetch: PluginContext['fetch'];
}

/** Users that are invited at the same time; the others are invited with a later turn. */
const MAX_INVITING = 100;

/** Knows each user's Matrix room with the oracle, and makes it when it is first needed. */
export class RoomDirectory {
  readonly #parts: RoomDirectoryParts;
  /** Of each owner at most one; every one is the part of a turn or of an invitation. */
  readonly #making = new Map<string, Promise<string>>();
  readonly #inviting = new Set<string>();

  constructor(parts: RoomDirectoryParts) {
    this.#parts = parts;
  }

  async find(owner: string): Promise<string | undefined> {
    const row = await this.#parts.database.tables
      .selectFrom('matrix_rooms')
      .select('room_id')
      .where('owner', '=', owner)
      .executeTakeFirst();
    return row?.room_id;
  }

  async roomOf(owner: string): Promise<string> {
    const known = await this.find(owner);
    if (known) return known;
    const making = this.#making.get(owner) ?? this.#make(owner);
    this.#making.set(owner, making);
    return making.finally(() => this.#making.delete(owner));
  }

  /** Asks the user in, once; `findHomeserver` finds the homeserver as their own token sees it. */
  async invite(owner: string, findHomeserver: () => Promise<Homeserver>): Promise<void> {
    // A homeserver that hangs would otherwise collect one attempt for every turn.
    if (this.#inviting.has(owner) || this.#inviting.size >= MAX_INVITING) return;
    this.#inviting.add(owner);
    try {
      await this.#invite(owner, findHomeserver);
    } finally {
      this.#inviting.delete(owner);
    }
  }

  async #invite(owner: string, findHomeserver: () => Promise<Homeserver>): Promise<void> {
    const { database, homeserver, fetch } = this.#parts;
    const roomId = await this.roomOf(owner);
    const known = await database.tables
      .selectFrom('matrix_rooms')
      .select('user_id')
      .where('owner', '=', owner)
      .executeTakeFirst();
    if (known?.user_id) return;
    const user = await findHomeserver();
    const { user_id: userId } = await askMatrix<{ user_id: string }>(
      user,
      { path: '/account/whoami' },
      fetch,
    );
    await this.#assertOwn(userId, user);
    const path = `/rooms/${segment(roomId)}/invite`;
    await askMatrix(homeserver, { method: 'POST', path, body: { user_id: userId } }, fetch);
    await database.write((tables) =>
      tables
        .updateTable('matrix_rooms')
        .set({ user_id: userId })
        .where('owner', '=', owner)
        .execute(),
    );
  }

  /** A homeserver says who its own users are; whom it names of others, the oracle must not bother. */
  async #assertOwn(userId: unknown, { baseUrl }: Homeserver): Promise<void> {
    const { homeserver, fetch } = this.#parts;
    if (baseUrl === homeserver.baseUrl) return;
    const [, server] = /^@[^:]+:([\w.:[\]-]+)$/.exec(String(userId)) ?? [];
    if (server && (await baseUrlOf(server, fetch)) === baseUrl) return;
    throw new MatrixError(0, 'the homeserver does not speak for the user it names');
  }

  /** The alias is the owner's alone, so that two processes end up with the same room. */
  async #make(owner: string): Promise<string> {
    const { database, oracle } = this.#parts;
    const hash = createHash('sha256').update(`${oracle.did} ${owner}`).digest('hex').slice(0, 32);
    const roomId = await this.#createOrFind(`sibyl-${hash}`);
    await database.write((tables) =>
      tables
        .insertInto('matrix_rooms')
        .values({ owner, room_id: roomId, user_id: null })
        .onConflict((conflict) => conflict.column('owner').doNothing())
        .execute(),
    );
    return roomId;
  }

  async #createOrFind(localAlias: string): Promise<string> {
    const { homeserver, oracle, fetch } = this.#parts;
    const body = {
      preset: 'private_chat',
      is_direct: true,
      name: oracle.name,
      room_alias_name: localAlias,
    };
    try {
      const created = await askMatrix<{ room_id: string }>(
        homeserver,
        { method: 'POST', path: '/createRoom', body },
        fetch,
      );
      return created.room_id;
    } catch (error) {
      if (!(error instanceof MatrixError) || error.status !== 400) throw error;
      return this.#findByAlias(localAlias);
    }
  }

  async #findByAlias(localAlias: string): Promise<string> {
    const { homeserver, fetch } = this.#parts;
    const { user_id: userId } = await askMatrix<{ user_id: string }>(
      homeserver,
      { path: '/account/whoami' },
      fetch,
    );
    const server = userId.slice(userId.indexOf(':') + 1);
    const path = `/directory/room/${segment(`#${localAlias}:${server}`)}`;
    return (await askMatrix<{ room_id: string }>(homeserver, { path }, fetch)).room_id;
  }
}

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
