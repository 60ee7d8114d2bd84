import type { CallerStore } from './callers/caller-store.js';
import type { DelegationStore } from './delegations/delegation-store.js';
import type { RevocationStore } from './delegations/revocation-store.js';
import type { SingleUseStore } from './delegations/single-use-store.js';
import type { DiskSpace } from './disk-space.js';
import type { IdempotencyStore } from './idempotency/idempotency-store.js';
import type { MessageStore } from './messages/message-store.js';
import type { BlobStore } from './plugins/blob-store.js';
import type { PluginTables } from './plugins/plugin-tables.js';
import type { SecretStore } from './plugins/secret-store.js';
import type { SessionStateStore } from './plugins/session-state-store.js';
import type { RoomStateStore } from './rooms/room-state-store.js';
import type { RoomStore } from './rooms/room-store.js';
import type { RunStore } from './runs/run-store.js';
import type { SessionStore } from './sessions/session-store.js';
import type { ModelUsageStore } from './usage/model-usage-store.js';

/** All that the host keeps, on one database. */
export interface Store {
  readonly sessions: SessionStore;
  readonly messages: MessageStore;
  readonly runs: RunStore;
  readonly idempotency: IdempotencyStore;
  readonly rooms: RoomStore;
  readonly roomState: RoomStateStore;
  readonly delegations: DelegationStore;
  readonly revocations: RevocationStore;
  readonly singleUse: SingleUseStore;
  readonly callers: CallerStore;
  readonly sessionState: SessionStateStore;
  readonly secrets: SecretStore;
  readonly blobs: BlobStore;
  readonly modelUsage: ModelUsageStore;
  readonly pluginTables: PluginTables;
  /** The disk of the database; unset where that is not on this machine. */
  readonly disk: DiskSpace | undefined;
  /** Rejects when the database does not answer. */
  ping(): Promise<void>;
  /** Writes something and takes it away again; rejects when the database takes no writes. */
  probeWrite(): Promise<void>;
  /** Gives the space of what was deleted back to the file system. */
  reclaim(): Promise<void>;
  /** Waits for writes under way, then lets go of the database. */
  close(): Promise<void>;
}
