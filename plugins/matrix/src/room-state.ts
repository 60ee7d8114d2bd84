import {
  abortable,
  type HostMessages,
  type Logger,
  type PluginDatabase,
  type RoomPlace,
  type RoomState,
  type SafeFetch,
  withTimeout,
} from '@sibyl/plugin-kit';
import { JsonObject } from '@sibyl/protocol';
import { z } from 'zod';
import {
  encodeSegment,
  type Homeserver,
  MatrixError,
  RequestPace,
  requestMatrix,
} from './homeserver.js';
import type { MatrixTables, RoomDirectory } from './rooms.js';

/** Reverse domain name, as Matrix requires for custom types. */
const EVENT_TYPE = 'org.sibyl.room_state';

/** How long a read waits for what only the Matrix room has. */
const IMPORT_TIMEOUT_MS = 800;
/** A change that is not stored by then was lost with its process; the copy is compared again. */
const CHANGE_MS = 5_000;
/** A copy that is not finished by then, nor found to be held by a dead host, is made again. */
const LEASE_MS = 2 * 60_000;
const BATCH = 20;
const FIRST_PAUSE_MS = 5_000;
const LONGEST_PAUSE_MS = 60 * 60_000;

export interface MatrixRoomStateDeps {
  /** The host's store, which decides; Matrix has a copy. */
  readonly stored: RoomState;
  readonly database: PluginDatabase<MatrixTables>;
  readonly hosts: Pick<HostMessages, 'hostId' | 'findDead'>;
  readonly homeserver: Homeserver;
  readonly rooms: RoomDirectory;
  readonly fetch: SafeFetch;
  readonly logger: Logger;
  readonly clock: () => number;
}

interface Copy {
  readonly owner: string;
  readonly key: string;
  readonly version: number;
  readonly attempts: number;
  readonly is_imported: number;
}

/** Stores room state in the host's store, and copies it to the user's Matrix room as state events, one per key. */
export class MatrixRoomState implements RoomState {
  private copying: Promise<void> | undefined;
  private readonly closing = new AbortController();
  private readonly pace = new RequestPace();

  constructor(private readonly deps: MatrixRoomStateDeps) {}

  /** Never creates a room, and does not wait for a homeserver that is down. */
  async read(place: RoomPlace, key: string): Promise<JsonObject | undefined> {
    const value = await this.deps.stored.read(place, key);
    return value ?? this.importOnce(place, key);
  }

  async update(
    place: RoomPlace,
    key: string,
    change: (current: JsonObject | undefined) => JsonObject,
  ): Promise<JsonObject> {
    const { stored, clock } = this.deps;
    // Marked before the change too: a process that dies in between leaves something to compare.
    await this.mark(place.owner, key, clock() + CHANGE_MS);
    const changed = await stored.update(place, key, change);
    await this.mark(place.owner, key, clock());
    void this.copyDue();
    return changed;
  }

  /** Copies what has changed to Matrix, at the pace that the homeserver permits. */
  copyDue(): Promise<void> {
    this.copying ??= this.copyBatches().finally(() => {
      this.copying = undefined;
    });
    return this.copying;
  }

  /** Starts no more copies, and leaves those that are not made yet to the next host; resolves once that is stored. */
  async close(): Promise<void> {
    this.closing.abort();
    await this.copying;
  }

  /** What the room says, if the store has nothing and never asked before: after the loss of a database. */
  private async importOnce(place: RoomPlace, key: string): Promise<JsonObject | undefined> {
    const { rooms, database, logger } = this.deps;
    const { owner } = place;
    const roomId = await rooms.find(owner);
    if (!roomId) return undefined;
    const known = await database.tables
      .selectFrom('matrix_state')
      .select('is_imported')
      .where('owner', '=', owner)
      .where('state_key', '=', key)
      .executeTakeFirst();
    if (known) return undefined;
    const limit = { ms: IMPORT_TIMEOUT_MS, message: 'the homeserver takes too long' };
    try {
      return await withTimeout(limit, (signal) => this.importState(place, key, { roomId, signal }));
    } catch (err) {
      logger.info({ err }, 'cannot read the state of a Matrix room; trying again later');
      return undefined;
    }
  }

  private async importState(
    place: RoomPlace,
    key: string,
    { roomId, signal }: { readonly roomId: string; readonly signal?: AbortSignal },
  ): Promise<JsonObject | undefined> {
    const { stored } = this.deps;
    const found = await this.readRoom(roomId, key, signal);
    const value = found && (await stored.update(place, key, (now) => ({ ...found, ...now })));
    await this.deps.database.write((tables) =>
      tables
        .insertInto('matrix_state')
        .values({ ...NEW_COPY, owner: place.owner, state_key: key, is_imported: 1 })
        .onConflict((c) => c.columns(['owner', 'state_key']).doUpdateSet({ is_imported: 1 }))
        .execute(),
    );
    return value;
  }

  private async readRoom(
    roomId: string,
    key: string,
    signal?: AbortSignal,
  ): Promise<JsonObject | undefined> {
    const { homeserver, fetch } = this.deps;
    const path = toStatePath(roomId, key);
    try {
      const asked = { path, reply: JsonObject, ...(signal && { signal }) };
      return await requestMatrix(homeserver, asked, fetch);
    } catch (error) {
      if (error instanceof MatrixError && error.status === 404) return undefined;
      throw error;
    }
  }

  /** Records that the copy in Matrix is outdated. */
  private async mark(owner: string, key: string, dueAt: number): Promise<void> {
    await this.deps.database.write((tables) =>
      tables
        .insertInto('matrix_state')
        .values({ ...NEW_COPY, owner, state_key: key, version: 1, due_at: dueAt })
        .onConflict((c) =>
          c.columns(['owner', 'state_key']).doUpdateSet((e) => ({
            version: e('matrix_state.version', '+', 1),
            due_at: dueAt,
          })),
        )
        .execute(),
    );
  }

  private async copyBatches(): Promise<void> {
    await this.releaseDead();
    for (let size = BATCH; size === BATCH && !this.closing.signal.aborted; ) {
      const batch = await this.claim();
      size = batch.length;
      for (const copy of batch) await this.copy(copy);
    }
  }

  /** What dead hosts were copying is due at once. */
  private async releaseDead(): Promise<void> {
    const { database, clock, hosts } = this.deps;
    const now = clock();
    const held = await database.tables
      .selectFrom('matrix_state')
      .select('holder')
      .distinct()
      .where('due_at', '>', now)
      .where('holder', '<>', hosts.hostId)
      .execute();
    const dead = await hosts.findDead(held.flatMap(({ holder }) => holder ?? []));
    if (dead.length === 0) return;
    await database.write((tables) =>
      tables
        .updateTable('matrix_state')
        .set({ due_at: now, holder: null })
        .where('due_at', '>', now)
        .where('holder', 'in', dead)
        .execute(),
    );
  }

  /** Copies that this host makes now; other hosts do not try them meanwhile. */
  private claim(): Promise<Copy[]> {
    const { database, clock, hosts } = this.deps;
    const now = clock();
    return database.write((tables) =>
      tables
        .updateTable('matrix_state')
        .set({ due_at: now + LEASE_MS, holder: hosts.hostId })
        .where((e) =>
          e(
            e.refTuple('owner', 'state_key'),
            'in',
            e
              .selectFrom('matrix_state')
              .select(['owner', 'state_key'])
              .whereRef('version', '>', 'sent_version')
              .where('due_at', '<=', now)
              .orderBy('due_at')
              .limit(BATCH)
              .$asTuple('owner', 'state_key'),
          ),
        )
        // Checked again, since another host may have been first.
        .where('due_at', '<=', now)
        .returning(['owner', 'state_key as key', 'version', 'attempts', 'is_imported'])
        .execute(),
    );
  }

  private async copy(copy: Copy): Promise<void> {
    const { logger, clock } = this.deps;
    const { signal } = this.closing;
    try {
      await abortable(() => this.send(copy), signal);
      await this.finish(copy, { sent_version: copy.version, attempts: 0, is_imported: 1 });
    } catch (err) {
      if (signal.aborted) return await this.finish(copy, { due_at: clock() });
      const pauseMs = (err instanceof MatrixError && err.retryAfterMs) || backOff(copy);
      logger.info({ err, pauseMs }, 'state is not copied to a Matrix room yet');
      await this.finish(copy, { attempts: copy.attempts + 1, due_at: clock() + pauseMs });
    }
  }

  private async send({ owner, key, is_imported }: Copy): Promise<void> {
    const { rooms, stored, homeserver, fetch } = this.deps;
    const roomId = await rooms.openRoom(owner);
    if (!is_imported) await this.importState({ owner }, key, { roomId });
    const body = await stored.read({ owner }, key);
    if (!body) return;
    const path = toStatePath(roomId, key);
    const request = { method: 'PUT', path, body, reply: z.unknown() } as const;
    await this.pace.run(() => requestMatrix(homeserver, request, fetch));
  }

  private async finish(
    { owner, key }: Pick<Copy, 'owner' | 'key'>,
    values: Partial<MatrixTables['matrix_state']>,
  ): Promise<void> {
    await this.deps.database.write((tables) =>
      tables
        .updateTable('matrix_state')
        .set({ ...values, holder: null })
        .where('owner', '=', owner)
        .where('state_key', '=', key)
        .execute(),
    );
  }
}

/** A copy that was not made yet. */
const NEW_COPY = { version: 0, sent_version: 0, is_imported: 0, attempts: 0, due_at: 0 };

const toStatePath = (roomId: string, key: string) =>
  `/rooms/${encodeSegment(roomId)}/state/${EVENT_TYPE}/${encodeSegment(key)}`;

const backOff = ({ attempts }: Copy) =>
  Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(20, attempts));
