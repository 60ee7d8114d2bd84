import { sql } from 'kysely';
import { CallerStore } from './callers/caller-store.js';
import type { Database } from './database/database.js';
import { DelegationStore } from './delegations/delegation-store.js';
import { RevocationStore } from './delegations/revocation-store.js';
import { SingleUseStore } from './delegations/single-use-store.js';
import { DiskSpace } from './disk-space.js';
import { createVault } from './encryption.js';
import { createIdSource } from './id-source.js';
import { IdempotencyStore } from './idempotency/idempotency-store.js';
import { MessageStore } from './messages/message-store.js';
import { type DatabaseOptions, openDatabase } from './open-database.js';
import { BlobStore } from './plugins/blob-store.js';
import { PluginTables } from './plugins/plugin-tables.js';
import { SecretStore } from './plugins/secret-store.js';
import { SessionStateStore } from './plugins/session-state-store.js';
import { RoomStateStore } from './rooms/room-state-store.js';
import { RoomStore } from './rooms/room-store.js';
import { createHostProcess } from './runs/host-process.js';
import {
  createMachineClock,
  DatabaseClock,
  fromClock,
  type LeaseClock,
} from './runs/lease-clock.js';
import { RunStore } from './runs/run-store.js';
import { SessionStore } from './sessions/session-store.js';
import type { Store } from './store.js';
import type { StoreOutage } from './store-outage.js';
import { ModelUsageStore } from './usage/model-usage-store.js';

export interface StoreOptions extends DatabaseOptions {
  /** 32 bytes from which the key for secrets at rest is derived. */
  readonly secretKey: Uint8Array;
  /** The current time in milliseconds. */
  readonly clock?: (() => number) | undefined;
  /** Free bytes below which new sessions and messages are refused; 0 or unset for no check. */
  readonly diskMinFree?: number | undefined;
  /** Is informed of writes that fail and of those that succeed. */
  readonly outage?: StoreOutage | undefined;
}

/** Opens the database the options name and brings its schema up to date. */
export async function openStore(options: StoreOptions): Promise<Store> {
  const vault = createVault(options.secretKey);
  const clock = options.clock ?? Date.now;
  const opened = await openDatabase(options);
  const database = options.outage?.watch(opened) ?? opened;
  const newId = createIdSource(clock);
  const disk = options.databaseUrl
    ? undefined
    : new DiskSpace(options.dataDir, options.diskMinFree ?? 0);
  const context = { database, clock, newId, disk };
  const leases = options.clock ? fromClock(options.clock) : createLeaseClock(database);
  await leases.sync().catch(async (error) => {
    await database.close();
    throw error;
  });
  const rooms = new RoomStore(context);
  return {
    sessions: new SessionStore(context),
    messages: new MessageStore(context),
    runs: new RunStore(context, createHostProcess(), leases),
    idempotency: new IdempotencyStore(context),
    rooms,
    roomState: new RoomStateStore(context, rooms),
    delegations: new DelegationStore(context, vault),
    revocations: new RevocationStore(context),
    singleUse: new SingleUseStore(context),
    callers: new CallerStore(context),
    sessionState: new SessionStateStore(context),
    secrets: new SecretStore(context, vault),
    blobs: new BlobStore(context),
    modelUsage: new ModelUsageStore(context),
    pluginTables: new PluginTables(database),
    disk,
    ping: async () => {
      await sql`select 1`.execute(database.tables);
    },
    probeWrite: () => probeWrite(database, newId()),
    reclaim: () => database.reclaim(),
    close: () => database.close(),
  };
}

function createLeaseClock(database: Database): LeaseClock {
  if (database.engine === 'sqlite') return createMachineClock();
  return new DatabaseClock(async () => {
    const query = sql<{
      time: number;
    }>`select extract(epoch from clock_timestamp())::float8 * 1000 as time`;
    const { rows } = await query.execute(database.tables);
    return Number(rows[0]?.time);
  });
}

/** A row under an id of its own, so that probes of several hosts do not wait for each other. */
function probeWrite(database: Database, id: string): Promise<void> {
  const key = { owner: 'readiness probe', key: id };
  const row = { ...key, body_hash: '', run_id: id, created_at: 0, expires_at: 0 };
  return database.write(async (tables) => {
    await tables.insertInto('idempotency_keys').values(row).execute();
    await tables
      .deleteFrom('idempotency_keys')
      .where('owner', '=', key.owner)
      .where('key', '=', key.key)
      .execute();
  });
}
