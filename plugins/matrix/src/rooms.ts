import { createHash } from 'node:crypto';
import type { PluginContext, PluginDatabase, SafeFetch } from '@sibyl/plugin-kit';
import { defineResultTable, inboxColumns } from '@sibyl/plugin-kit/chat';
import { bigint, defineTable, type TableTypes, text } from '@sibyl/plugin-kit/tables';
import { z } from 'zod';
import {
  encodeSegment,
  type Homeserver,
  MatrixError,
  RequestPace,
  requestMatrix,
  resolveBaseUrl,
} from './homeserver.js';

const WhoAmI = z.object({ user_id: z.string() });
const Room = z.object({ room_id: z.string() });

const rooms = defineTable(
  'matrix_rooms',
  { owner: text(), room_id: text(), user_id: text().optional() },
  { key: ['owner'] },
);

/** The copies of values in the users' Matrix rooms. */
const state = defineTable(
  'matrix_state',
  {
    owner: text(),
    state_key: text(),
    /** Counts changes. */
    version: bigint(),
    /** The last change that is in Matrix. */
    sent_version: bigint(),
    /** 1 once the store has what was in Matrix before. */
    is_imported: bigint(),
    attempts: bigint(),
    /** Milliseconds: not before this time. */
    due_at: bigint(),
    /** The host that makes the copy now. */
    holder: text().optional(),
  },
  { key: ['owner', 'state_key'], indexes: { matrix_state_by_due: { on: ['due_at'] } } },
);

const inbox = defineTable('matrix_inbox', inboxColumns, {
  key: ['owner', 'event_id'],
  indexes: {
    matrix_inbox_by_event: { on: ['event_id'] },
    matrix_inbox_by_state: { on: ['state', 'lease_until'] },
  },
});

const threads = defineTable(
  'matrix_threads',
  {
    owner: text(),
    room_id: text(),
    thread: text(),
    session_id: text(),
    /** The account that the messages of the owner come from. */
    sender: text(),
  },
  {
    key: ['owner', 'room_id', 'thread'],
    indexes: { matrix_threads_by_room: { on: ['room_id', 'thread'] } },
  },
);

const links = defineTable(
  'matrix_links',
  {
    owner: text(),
    user_id: text(),
    /** Of the delegation. */
    cid: text(),
    code_hash: text().optional(),
    /** Milliseconds. */
    code_expires_at: bigint(),
    /** Milliseconds; null until the account has sent the code. */
    linked_at: bigint().optional(),
  },
  { key: ['owner', 'user_id'], indexes: { matrix_links_by_user: { on: ['user_id'] } } },
);

const results = defineResultTable('matrix_results');

/** The position in the stream of events of the oracle's account, and the host that reads it. */
const sync = defineTable(
  'matrix_sync',
  {
    /** The oracle. */
    owner: text(),
    account: text(),
    since: text().optional(),
    holder: text(),
    /** Milliseconds. */
    lease_until: bigint(),
  },
  { key: ['owner', 'account'] },
);

export const tables = [rooms, state, inbox, threads, links, results, sync] as const;

export type MatrixTables = TableTypes<typeof tables>;

interface RoomDirectoryDeps {
  readonly database: PluginDatabase<MatrixTables>;
  readonly homeserver: Homeserver;
  readonly oracle: PluginContext['oracle'];
  readonly fetch: SafeFetch;
}

/** Concurrent invitations; other users are invited in a later turn. */
const MAX_INVITING = 100;

/** Each user's Matrix room with the oracle; creates it at the first use. */
export class RoomDirectory {
  private readonly deps: RoomDirectoryDeps;
  /** At most one per owner; each belongs to a turn or an invitation. */
  private readonly creating = new Map<string, Promise<string>>();
  private readonly inviting = new Set<string>();
  private readonly creationPace = new RequestPace();

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
      const request = { method: 'POST', path: '/createRoom', body, reply: Room } as const;
      const created = await this.creationPace.run(() => requestMatrix(homeserver, request, fetch));
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
