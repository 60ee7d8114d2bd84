import { sql } from 'kysely';
import { DelegationStore } from './delegations/delegation-store.js';
import { RevocationStore } from './delegations/revocation-store.js';
import { SingleUseStore } from './delegations/single-use-store.js';
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
import { RunStore } from './runs/run-store.js';
import { SessionStore } from './sessions/session-store.js';
import type { Store } from './store.js';

export interface StoreOptions extends DatabaseOptions {
  /** 32 bytes from which the key for secrets at rest is derived. */
  readonly secretKey: Uint8Array;
  /** The current time in milliseconds. */
  readonly clock?: (() => number) | undefined;
}

/** Opens the database the options name and brings its schema up to date. */
export async function openStore(options: StoreOptions): Promise<Store> {
  const vault = createVault(options.secretKey);
  const clock = options.clock ?? Date.now;
  const database = await openDatabase(options);
  const newId = createIdSource(clock);
  const context = { database, clock, newId };
  const rooms = new RoomStore(context);
  return {
    sessions: new SessionStore(context),
    messages: new MessageStore(context),
    runs: new RunStore(context, createHostProcess()),
    idempotency: new IdempotencyStore(context),
    rooms,
    roomState: new RoomStateStore(context, rooms),
    delegations: new DelegationStore(context, vault),
    revocations: new RevocationStore(context),
    singleUse: new SingleUseStore(context),
    sessionState: new SessionStateStore(context),
    secrets: new SecretStore(context, vault),
    blobs: new BlobStore(context),
    pluginTables: new PluginTables(database),
    ping: async () => {
      await sql`select 1`.execute(database.tables);
    },
    close: () => database.close(),
  };
}
