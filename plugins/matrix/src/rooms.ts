import { createHash } from 'node:crypto';
import type {
  InboxRow,
  PluginContext,
  PluginDatabase,
  PluginMigrations,
  SafeFetch,
} from '@sibyl/plugin-kit';
import type { Kysely } from 'kysely';
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

export interface MatrixTables {
  matrix_rooms: { owner: string; room_id: string; user_id: string | null };
  matrix_state: StateRow;
  matrix_inbox: InboxRow;
  matrix_threads: {
    owner: string;
    room_id: string;
    thread: string;
    session_id: string;
    /** The account that the messages of the owner come from. */
    sender: string;
  };
  matrix_links: {
    owner: string;
    user_id: string;
    /** Of the delegation. */
    cid: string;
    code_hash: string | null;
    /** Milliseconds. */
    code_expires_at: number;
    /** Milliseconds; null until the account has sent the code. */
    linked_at: number | null;
  };
  matrix_results: { owner: string; place: string; address_hash: string };
  /** The position in the stream of events of the oracle's account, and the host that reads it. */
  matrix_sync: {
    /** The oracle. */
    owner: string;
    account: string;
    since: string | null;
    holder: string;
    /** Milliseconds. */
    lease_until: number;
  };
}

/** The copy of a value in the user's Matrix room. */
interface StateRow {
  owner: string;
  state_key: string;
  /** Counts changes. */
  version: number;
  /** The last change that is in Matrix. */
  sent_version: number;
  /** 1 once the store has what was in Matrix before. */
  is_imported: number;
  attempts: number;
  /** Milliseconds: not before this time. */
  due_at: number;
  /** The host that makes the copy now. */
  holder: string | null;
}

export const migrations: PluginMigrations = {
  async '0001-rooms'(tables) {
    await tables.schema
      .createTable('matrix_rooms')
      .addColumn('owner', 'text', (column) => column.primaryKey())
      .addColumn('room_id', 'text', (column) => column.notNull())
      .addColumn('user_id', 'text')
      .execute();
  },
  async '0002-state'(tables) {
    await tables.schema
      .createTable('matrix_state')
      .addColumn('owner', 'text', (column) => column.notNull())
      .addColumn('state_key', 'text', (column) => column.notNull())
      .addColumn('version', 'bigint', (column) => column.notNull())
      .addColumn('sent_version', 'bigint', (column) => column.notNull())
      .addColumn('is_imported', 'bigint', (column) => column.notNull())
      .addColumn('attempts', 'bigint', (column) => column.notNull())
      .addColumn('due_at', 'bigint', (column) => column.notNull())
      .addPrimaryKeyConstraint('matrix_state_by_owner', ['owner', 'state_key'])
      .execute();
    await tables.schema
      .createIndex('matrix_state_by_due')
      .on('matrix_state')
      .column('due_at')
      .execute();
  },
  async '0003-chat'(tables) {
    await createInbox(tables);
    await createChatTables(tables);
    await tables.schema
      .createTable('matrix_results')
      .addColumn('owner', 'text', (c) => c.notNull())
      .addColumn('place', 'text', (c) => c.notNull())
      .addColumn('address_hash', 'text', (c) => c.notNull().unique())
      .addPrimaryKeyConstraint('matrix_results_by_owner', ['owner', 'place'])
      .execute();
  },
  async '0004-holder'(tables) {
    await tables.schema.alterTable('matrix_state').addColumn('holder', 'text').execute();
  },
};

// biome-ignore lint/suspicious/noExplicitAny: a migration sees the tables of its time.
async function createInbox(tables: Kysely<any>): Promise<void> {
  await tables.schema
    .createTable('matrix_inbox')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('event_id', 'text', (c) => c.notNull())
    .addColumn('message_key', 'text', (c) => c.notNull())
    .addColumn('message', 'text', (c) => c.notNull())
    .addColumn('state', 'text', (c) => c.notNull())
    .addColumn('attempts', 'bigint', (c) => c.notNull())
    .addColumn('replies', 'text', (c) => c.notNull())
    .addColumn('holder', 'text', (c) => c.notNull())
    .addColumn('lease_until', 'bigint', (c) => c.notNull())
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addPrimaryKeyConstraint('matrix_inbox_by_owner', ['owner', 'event_id'])
    .execute();
  await tables.schema
    .createIndex('matrix_inbox_by_event')
    .on('matrix_inbox')
    .column('event_id')
    .execute();
  await tables.schema
    .createIndex('matrix_inbox_by_state')
    .on('matrix_inbox')
    .columns(['state', 'lease_until'])
    .execute();
}

// biome-ignore lint/suspicious/noExplicitAny: a migration sees the tables of its time.
async function createChatTables(tables: Kysely<any>): Promise<void> {
  await tables.schema
    .createTable('matrix_threads')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('room_id', 'text', (c) => c.notNull())
    .addColumn('thread', 'text', (c) => c.notNull())
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('sender', 'text', (c) => c.notNull())
    .addPrimaryKeyConstraint('matrix_threads_by_owner', ['owner', 'room_id', 'thread'])
    .execute();
  await tables.schema
    .createIndex('matrix_threads_by_room')
    .on('matrix_threads')
    .columns(['room_id', 'thread'])
    .execute();
  await tables.schema
    .createTable('matrix_links')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('user_id', 'text', (c) => c.notNull())
    .addColumn('cid', 'text', (c) => c.notNull())
    .addColumn('code_hash', 'text')
    .addColumn('code_expires_at', 'bigint', (c) => c.notNull())
    .addColumn('linked_at', 'bigint')
    .addPrimaryKeyConstraint('matrix_links_by_owner', ['owner', 'user_id'])
    .execute();
  await tables.schema
    .createIndex('matrix_links_by_user')
    .on('matrix_links')
    .column('user_id')
    .execute();
  await tables.schema
    .createTable('matrix_sync')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('account', 'text', (c) => c.notNull())
    .addColumn('since', 'text')
    .addColumn('holder', 'text', (c) => c.notNull())
    .addColumn('lease_until', 'bigint', (c) => c.notNull())
    .addPrimaryKeyConstraint('matrix_sync_by_owner', ['owner', 'account'])
    .execute();
}

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
