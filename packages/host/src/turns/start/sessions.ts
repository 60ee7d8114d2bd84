import { Id, OracleError } from '@sibyl/protocol';
import type { OracleIdentity } from '../../auth/oracle-identity.js';
import { createClosingEvent, type EventBus, type SessionKey } from '../../bus/event-bus.js';
import type { SessionChanges } from '../../bus/session-changes.js';
import type { DiskSpace } from '../../store/disk-space.js';
import type { Message, MessageStore } from '../../store/message-store.js';
import type { NewSession, Session, SessionStore } from '../../store/session-store.js';
import { buildCacheInvalidation } from '../run/run-log.js';
import type { Turns } from '../turns.js';
import { claimSession, confirmWrite } from './idempotent-starts.js';

interface SessionsDeps {
  readonly sessions: SessionStore;
  readonly messages: MessageStore;
  readonly oracle: OracleIdentity;
  readonly turns: Turns;
  readonly events: EventBus;
  readonly changes: SessionChanges;
  /** Sessions per user: identities are free, storage is not. */
  readonly maxPerUser: number;
  readonly disk: DiskSpace | undefined;
  /** Charges what is copied to the day's limits of its user; throws if too little is left. */
  readonly charge: (owner: string, bytes: number) => Promise<void>;
}

/** Creates, changes, copies and deletes sessions, and reports it to the clients of their user. */
export class SessionsService {
  constructor(private readonly deps: SessionsDeps) {}

  async open(wanted: {
    readonly owner: string;
    readonly title?: string | undefined;
    /** Whether it appears in no list and is deleted once it is not used any more. */
    readonly isUnlisted?: boolean | undefined;
    readonly thread?: NewSession['thread'];
    readonly roomId?: NewSession['roomId'];
    /** A repeated request with this key gets the session of the first one. */
    readonly idempotencyKey?: string | undefined;
  }): Promise<Session> {
    const { did: oracleDid, name: oracleName, entityDid: oracleEntityDid } = this.deps.oracle;
    const { idempotencyKey, ...options } = wanted;
    const idempotency =
      idempotencyKey === undefined ? undefined : claimSession(idempotencyKey, wanted.title);
    const oracle = { oracleDid, oracleName, oracleEntityDid };
    const session = await this.create({ ...options, ...oracle, idempotency });
    this.deps.changes.publish(toKey(session), 'created');
    return session;
  }

  async rename(key: SessionKey, title: string): Promise<void> {
    if (!(await this.deps.sessions.rename({ ...key, title })))
      throw new OracleError('session_not_found');
    this.deps.changes.publish(key, 'renamed');
  }

  /** Switches to the path through a message; pages that show the session read it again. */
  async activate(key: SessionKey, messageId: string, requestId: string): Promise<void> {
    const { sessions, changes, events } = this.deps;
    await sessions.get(key);
    if (!(await sessions.activate({ ...key, messageId })))
      throw new OracleError('message_not_found');
    const { event, data: payload } = buildCacheInvalidation({ ...key, requestId });
    events.publish(key, { event, payload });
    changes.publish(key, 'switched');
  }

  /** Copies the path up to a message into a new session. */
  async fork(
    { owner, sessionId }: SessionKey,
    { messageId, title }: { readonly messageId: string; readonly title?: string | undefined },
  ): Promise<Session> {
    const { sessions, messages, changes, disk, charge } = this.deps;
    const source = await sessions.get({ owner, sessionId });
    const last = await messages.find({ owner, messageId });
    if (last?.sessionId !== sessionId) throw new OracleError('message_not_found');
    const bytes = await messages.measureCopy(last);
    const space = await disk?.reserve(bytes);
    try {
      await charge(owner, bytes);
      const wanted = { ...source, title: title ?? source.title, isUnlisted: true };
      const session = await this.create(wanted);
      await this.copy(last, toKey(session));
      changes.publish(toKey(session), 'created');
      return await sessions.get(toKey(session));
    } finally {
      space?.release();
    }
  }

  private async copy(last: Message, key: SessionKey): Promise<void> {
    const { sessions, messages } = this.deps;
    try {
      await messages.copy(last, key.sessionId);
    } catch (error) {
      await sessions.delete(key).catch(() => false);
      // Another new session has taken the place of the unfinished one.
      if (error instanceof OracleError && error.code === 'session_not_found')
        throw new OracleError('too_many_sessions');
      throw error;
    }
  }

  /** Deletes the session with its messages and runs, and closes its sockets. */
  async remove(key: SessionKey): Promise<void> {
    const { turns, events, changes } = this.deps;
    await turns.interruptAll(key);
    // A malformed id is treated like an unknown one.
    const isKnown = Id.safeParse(key.sessionId).success && (await this.delete(key));
    if (!isKnown) throw new OracleError('session_not_found');
    events.publish(key, createClosingEvent('session_deleted', key.sessionId));
    changes.publish(key, 'deleted');
  }

  /** Deletes a session in which no turn has begun. */
  async removeEmpty(key: SessionKey): Promise<void> {
    if (await this.deps.sessions.deleteEmpty(key)) this.deps.changes.publish(key, 'deleted');
  }

  private delete(key: SessionKey): Promise<boolean> {
    const { sessions } = this.deps;
    return sessions
      .delete(key)
      .catch((error) =>
        confirmWrite(error, async () => ((await sessions.find(key)) ? undefined : true)),
      );
  }

  private async create(wanted: NewSession): Promise<Session> {
    const { sessions, turns, maxPerUser, disk } = this.deps;
    await turns.assertPromptFor(wanted.owner);
    await disk?.assertRoom();
    const session = await sessions.createWithin(maxPerUser, wanted);
    if (!session) throw new OracleError('too_many_sessions');
    return session;
  }
}

const toKey = ({ owner, sessionId }: Session): SessionKey => ({ owner, sessionId });
