import type { DelegationStore } from './delegations/delegation-store.js';
import type { RevocationStore } from './delegations/revocation-store.js';
import type { SingleUseStore } from './delegations/single-use-store.js';
import type { IdempotencyStore } from './idempotency/idempotency-store.js';
import type { MessageStore } from './messages/message-store.js';
import type { PreferenceStore } from './rooms/preference-store.js';
import type { RoomStore } from './rooms/room-store.js';
import type { RunStore } from './runs/run-store.js';
import type { SessionStore } from './sessions/session-store.js';

/** All that the host keeps, on one database. */
export interface Store {
  readonly sessions: SessionStore;
  readonly messages: MessageStore;
  readonly runs: RunStore;
  readonly idempotency: IdempotencyStore;
  readonly rooms: RoomStore;
  readonly preferences: PreferenceStore;
  readonly delegations: DelegationStore;
  readonly revocations: RevocationStore;
  readonly singleUse: SingleUseStore;
  /** Rejects when the database does not answer. */
  ping(): Promise<void>;
  /** Waits for writes under way, then lets go of the database. */
  close(): Promise<void>;
}
