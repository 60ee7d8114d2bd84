import { Id, OracleError } from '@sibyl/protocol';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import { closingEvent, type EventBus } from '../bus/event-bus.js';
import type { DiskSpace } from '../store/disk-space.js';
import type { Session, SessionKey, SessionStore } from '../store/session-store.js';
import type { Turns } from './turns.js';

interface SessionsParts {
  readonly sessions: SessionStore;
  readonly oracle: OracleIdentity;
  readonly turns: Turns;
  readonly events: EventBus;
  /** Identities cost nothing, room in the store does: each user may keep so many. */
  readonly maxPerUser: number;
  readonly disk: DiskSpace | undefined;
}

/** Opens sessions of users with this oracle, and ends them with all that belongs to them. */
export class SessionsService {
  private readonly parts: SessionsParts;

  constructor(parts: SessionsParts) {
    this.parts = parts;
  }

  async open(wanted: {
    readonly owner: string;
    readonly title?: string | undefined;
  }): Promise<Session> {
    const { sessions, oracle, maxPerUser, disk } = this.parts;
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

  /** Takes messages and runs with it, and ends the sockets that still listen. */
  async remove(key: SessionKey): Promise<void> {
    const { sessions, turns, events } = this.parts;
    await turns.interruptAll(key);
    // An id that could not have been ours is as unknown as any other.
    const isKnown = Id.safeParse(key.sessionId).success && (await sessions.delete(key));
    if (!isKnown) throw new OracleError('session_not_found');
    events.publish(key, closingEvent('session_deleted', key.sessionId));
  }
}
