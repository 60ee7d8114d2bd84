import { createHash } from 'node:crypto';
import type { PluginContext, PluginDatabase, RoomPlace, RoomState } from '@sibyl/plugin-kit';
import { JsonObject } from '@sibyl/protocol';
import { z } from 'zod';
import {
  encodeSegment,
  type Homeserver,
  MatrixError,
  requestMatrix,
  resolveBaseUrl,
} from './homeserver.js';

const WhoAmI = z.object({ user_id: z.string() });
const Room = z.object({ room_id: z.string() });

export interface MatrixTables {
  matrix_rooms: { owner: string; room_id: string; user_id: string | null };
}

interface RoomDirectoryDeps {
  readonly database: PluginDatabase<MatrixTables>;
  readonly homeserver: Homeserver;
  readonly oracle: PluginContext['oracle'];
  readonly fetch: PluginContext['fetch'];
}

/** Concurrent invitations; other users are invited in a later turn. */
const MAX_INVITING = 100;

/** Each user's Matrix room with the oracle; creates it at the first use. */
export class RoomDirectory {
  private readonly deps: RoomDirectoryDeps;
  /** At most one per owner; each belongs to a turn or an invitation. */
  private readonly creating = new Map<string, Promise<string>>();
  private readonly inviting = new Set<string>();

  constructor(deps: RoomDirectoryDeps) {
    this.deps = deps;
  }

  async find(owner: string): Promise<string | undefined> {
    const row = await this.deps.database.tables
      .selectFrom('matrix_rooms')
      .select('room_id')
      .where('owner', '=', owner)
      .executeTakeFirst();
    return row?.room_id;
  }

  async openRoom(owner: string): Promise<string> {
    const known = await this.find(owner);
    if (known) return known;
    const creating = this.creating.get(owner) ?? this.create(owner);
    this.creating.set(owner, creating);
    return creating.finally(() => this.creating.delete(owner));
  }

  /** Invites the user once; `findHomeserver` returns the user's homeserver with their token. */
  async invite(owner: string, findHomeserver: () => Promise<Homeserver>): Promise<void> {
    // Otherwise a homeserver that hangs collects one attempt per turn.
    if (this.inviting.has(owner) || this.inviting.size >= MAX_INVITING) return;
    this.inviting.add(owner);
    try {
      await this.inviteUser(owner, findHomeserver);
    } finally {
      this.inviting.delete(owner);
    }
  }

  private async inviteUser(
    owner: string,
    findHomeserver: () => Promise<Homeserver>,
  ): Promise<void> {
    const { database, homeserver, fetch } = this.deps;
    const roomId = await this.openRoom(owner);
    const known = await database.tables
      .selectFrom('matrix_rooms')
      .select('user_id')
      .where('owner', '=', owner)
      .executeTakeFirst();
    if (known?.user_id) return;
    const user = await findHomeserver();
    const { user_id: userId } = await requestMatrix(
      user,
      { path: '/account/whoami', reply: WhoAmI },
      fetch,
    );
    await this.assertOwn(userId, user);
    const path = `/rooms/${encodeSegment(roomId)}/invite`;
    await requestMatrix(
      homeserver,
      { method: 'POST', path, body: { user_id: userId }, reply: z.unknown() },
      fetch,
    );
    await database.write((tables) =>
      tables
        .updateTable('matrix_rooms')
        .set({ user_id: userId })
        .where('owner', '=', owner)
        .execute(),
    );
  }

  /** A homeserver may name its own users only, so that it cannot make the oracle invite others. */
  private async assertOwn(userId: unknown, { baseUrl }: Homeserver): Promise<void> {
    const { homeserver, fetch } = this.deps;
    if (baseUrl === homeserver.baseUrl) return;
    const [, server] = /^@[^:]+:([\w.:[\]-]+)$/.exec(String(userId)) ?? [];
    if (server && (await resolveBaseUrl(server, fetch)) === baseUrl) return;
    throw new MatrixError(0, 'the homeserver is not that of the user it names');
  }

  /** The alias is unique per owner, so that two processes find the same room. */
  private async create(owner: string): Promise<string> {
    const { database, oracle } = this.deps;
    const hash = createHash('sha256').update(`${oracle.did} ${owner}`).digest('hex').slice(0, 32);
    const roomId = await this.createOrFind(`sibyl-${hash}`);
    await database.write((tables) =>
      tables
        .insertInto('matrix_rooms')
        .values({ owner, room_id: roomId, user_id: null })
        .onConflict((conflict) => conflict.column('owner').doNothing())
        .execute(),
    );
    return roomId;
  }

  private async createOrFind(localAlias: string): Promise<string> {
    const { homeserver, oracle, fetch } = this.deps;
    const body = {
      preset: 'private_chat',
      is_direct: true,
      name: oracle.name,
      room_alias_name: localAlias,
    };
    try {
      const created = await requestMatrix(
        homeserver,
        { method: 'POST', path: '/createRoom', body, reply: Room },
        fetch,
      );
      return created.room_id;
    } catch (error) {
      if (!(error instanceof MatrixError) || error.status !== 400) throw error;
      return this.findByAlias(localAlias);
    }
  }

  private async findByAlias(localAlias: string): Promise<string> {
    const { homeserver, fetch } = this.deps;
    const { user_id: userId } = await requestMatrix(
      homeserver,
      { path: '/account/whoami', reply: WhoAmI },
      fetch,
    );
    const server = userId.slice(userId.indexOf(':') + 1);
    const path = `/directory/room/${encodeSegment(`#${localAlias}:${server}`)}`;
    return (await requestMatrix(homeserver, { path, reply: Room }, fetch)).room_id;
  }
}

/** Reverse domain name, as Matrix requires for custom types. */
const EVENT_TYPE = 'org.sibyl.room_state';

interface MatrixRoomStateDeps {
  readonly homeserver: Homeserver;
  readonly rooms: RoomDirectory;
  readonly fetch: PluginContext['fetch'];
  readonly logger: PluginContext['logger'];
}

/** Pending changes, per room and key and in total. */
const MAX_WAITING_PER_PLACE = 20;
const MAX_WAITING = 1000;

interface Changes {
  /** Settles with the last change. */
  readonly last: Promise<unknown>;
  readonly count: number;
}

/** Stores room state as state events of the Matrix room, one per key. */
export class MatrixRoomState implements RoomState {
  private readonly deps: MatrixRoomStateDeps;
  /** Matrix has no compare-and-set, so the changes of a place run one after the other. */
  private readonly changes = new Map<string, Changes>();
  private pending = 0;

  constructor(deps: MatrixRoomStateDeps) {
    this.deps = deps;
  }

  async read(place: RoomPlace, key: string): Promise<JsonObject | undefined> {
    const { homeserver, fetch } = this.deps;
    try {
      const path = await this.path(place, key);
      return await requestMatrix(homeserver, { path, reply: JsonObject }, fetch);
    } catch (error) {
      if (error instanceof MatrixError && error.status === 404) return undefined;
      this.deps.logger.warn({ err: error }, 'cannot read the state of a Matrix room');
      throw error;
    }
  }

  async update(
    place: RoomPlace,
    key: string,
    change: (current: JsonObject | undefined) => JsonObject,
  ): Promise<JsonObject> {
    const id = JSON.stringify([place.owner, place.roomId, key]);
    const { last, count } = this.changes.get(id) ?? { last: Promise.resolve(), count: 0 };
    if (count >= MAX_WAITING_PER_PLACE || this.pending >= MAX_WAITING) throw new Error(BUSY);
    const changed = last.catch(() => undefined).then(() => this.change(place, key, change));
    this.changes.set(id, { last: changed, count: count + 1 });
    this.pending += 1;
    try {
      return await changed;
    } finally {
      this.pending -= 1;
      this.release(id);
    }
  }

  private release(id: string): void {
    const { last, count } = this.changes.get(id) ?? { last: undefined, count: 0 };
    if (last && count > 1) this.changes.set(id, { last, count: count - 1 });
    else this.changes.delete(id);
  }

  private async change(
    place: RoomPlace,
    key: string,
    change: (current: JsonObject | undefined) => JsonObject,
  ): Promise<JsonObject> {
    const { homeserver, fetch } = this.deps;
    const body = change(await this.read(place, key));
    const path = await this.path(place, key);
    await requestMatrix(homeserver, { method: 'PUT', path, body, reply: z.unknown() }, fetch);
    return body;
  }

  private async path({ owner }: RoomPlace, key: string): Promise<string> {
    const roomId = await this.deps.rooms.openRoom(owner);
    return `/rooms/${encodeSegment(roomId)}/state/${EVENT_TYPE}/${encodeSegment(key)}`;
  }
}

const BUSY = 'Too many changes are pending; try again later';
