import { Id, OracleError } from '@sibyl/protocol';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import { createClosingEvent, type EventBus, type SessionKey } from '../bus/event-bus.js';
import type { DiskSpace } from '../store/disk-space.js';
import type { Session, SessionStore } from '../store/session-store.js';
import type { Turns } from './turns.js';

interface SessionsDeps {
  readonly sessions: SessionStore;
  readonly oracle: OracleIdentity;
  readonly turns: Turns;
  readonly events: EventBus;
  /** Sessions per user: identities are free, storage is not. */
  readonly maxPerUser: number;
  readonly disk: DiskSpace | undefined;
}

/** Creates sessions, and deletes them with everything that belongs to them. */
export class SessionsService {
  constructor(private readonly deps: SessionsDeps) {}

  async open(wanted: {
    readonly owner: string;
    readonly title?: string | undefined;
  }): Promise<Session> {
    const { sessions, oracle, maxPerUser, disk } = this.deps;
    await disk?.assertRoom();
    const { did: oracleDid, name: oracleName, entityDid: oracleEntityDid } = oracle;
    const session = await sessions.createWithin(maxPerUser, {
      ...wanted,
      oracleDid,
      oracleName,
      oracleEntityDid,
    });
    if (!session) throw new OracleError('too_many_sessions');
    return session;
  }

  /** Deletes the session with its messages and runs, and closes its sockets. */
  async remove(key: SessionKey): Promise<void> {
    const { sessions, turns, events } = this.deps;
    await turns.interruptAll(key);
    // A malformed id is treated like an unknown one.
    const isKnown = Id.safeParse(key.sessionId).success && (await sessions.delete(key));
    if (!isKnown) throw new OracleError('session_not_found');
    events.publish(key, createClosingEvent('session_deleted', key.sessionId));
  }
}
