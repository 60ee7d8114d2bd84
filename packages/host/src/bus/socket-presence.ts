import type { Logger } from 'pino';
import {
  type CallEvent,
  type ClientCallResult,
  formatSessionKey,
  type SessionKey,
} from './event-bus.js';
import type { HostBus, HostLiveness } from './host-bus.js';

/** A user with open sockets. */
export interface SocketUser {
  readonly did: string;
  readonly count: number;
}

/** How many sockets of a session this host holds. */
export interface SocketCount extends SessionKey {
  readonly sockets: number;
}

/** A call to a page that waits for an answer, on any host. */
export interface SharedCall {
  readonly call: CallEvent;
  /** The host of the turn. */
  readonly hostId: string;
  /** Whether a page at another host has received it. */
  readonly isDelivered: boolean;
}

/** What the database has of a call: it may lose the call in a crash. */
export interface StoredCall {
  readonly isStored: boolean;
  /** Whether a page has received it, at any host. */
  readonly isDelivered: boolean;
  readonly answer?: ClientCallResult | undefined;
}

/** What hosts that share a database must find out about each other's sockets and calls to pages. */
export interface SocketDirectory {
  /** Records how many sockets of these sessions this host holds. */
  setCounts(counts: readonly SocketCount[]): Promise<void>;
  /** The other hosts that hold sockets of a session. */
  findHosts(key: SessionKey): Promise<readonly string[]>;
  /** How many sockets of a user other hosts hold. */
  countElsewhere(owner: string): Promise<number>;
  /** Those of the sessions that had a turn at another host, or at this one of them, in the last minute. */
  findTurnsElsewhere(
    sessions: readonly SessionKey[],
    hostId?: string,
  ): Promise<readonly SessionKey[]>;
  /** All hosts that have recorded something. */
  listHosts(): Promise<readonly string[]>;
  /** Removes what a host that has ended had recorded. */
  removeHost(hostId: string): Promise<void>;

  addCall(key: SessionKey, call: CallEvent): Promise<void>;
  removeCall(key: SessionKey, callId: string): Promise<void>;
  /** The calls of a session without an answer. */
  listCalls(key: SessionKey): Promise<readonly SharedCall[]>;
  /** Records that a page at this host has received a call. */
  markDelivered(key: SessionKey, callId: string): Promise<void>;
  /** As `markDelivered`; false if a page that another host still holds has received the call. */
  claimDelivery(key: SessionKey, callId: string): Promise<boolean>;
  /** Stores the answer to a call of another host; false if there was one. */
  answerCall(key: SessionKey, hostId: string, answer: ClientCallResult): Promise<boolean>;
  findCall(key: SessionKey, callId: string): Promise<StoredCall>;
}

const RETRY_MS = 1_000;

/** Where the sockets of sessions are. */
export interface SocketPresence {
  /** Announces a socket; from then on, other hosts send the events of its session to this host. */
  open(key: SessionKey): Promise<void>;
  close(key: SessionKey): void;
  /** How many sockets of a user other hosts hold. */
  countElsewhere(owner: string): Promise<number>;
}

/** For a host that has its database for itself. */
export const solePresence: SocketPresence = {
  open: async () => {},
  close: () => {},
  countElsewhere: async () => 0,
};

interface SharedPresenceDeps {
  readonly directory: SocketDirectory;
  readonly bus: HostBus;
  readonly liveness: HostLiveness;
  readonly logger: Pick<Logger, 'warn'>;
}

/** Records in the database which sessions have sockets at this host. */
export class SharedPresence implements SocketPresence {
  private readonly deps: SharedPresenceDeps;
  /** At most as many entries as open sockets. */
  private readonly counts = new Map<string, SocketCount>();
  /** Sessions whose count is not stored yet. */
  private readonly changed = new Map<string, SessionKey>();
  /** Sessions that other hosts do not know to have sockets here. */
  private readonly unannounced = new Map<string, SessionKey>();
  private lastWrite: Promise<void> = Promise.resolve();
  private retry: NodeJS.Timeout | undefined;

  constructor(deps: SharedPresenceDeps) {
    this.deps = deps;
    deps.liveness.onHostLost((hostId) => this.removeHost(hostId));
    // Meanwhile another host, or a crash of the server, may have removed the rows.
    deps.liveness.onRegained(() => {
      for (const [name, { owner, sessionId }] of this.counts) {
        this.changed.set(name, { owner, sessionId });
        this.unannounced.set(name, { owner, sessionId });
      }
      this.writeLater();
    });
    this.removeDeadHosts().catch((err) =>
      deps.logger.warn({ err }, 'cannot remove the sockets of hosts that have ended'),
    );
  }

  async open(key: SessionKey): Promise<void> {
    const { owner, sessionId } = key;
    this.change(key, 1);
    this.unannounced.set(formatSessionKey(key), { owner, sessionId });
    await this.write();
  }

  close(key: SessionKey): void {
    this.change(key, -1);
    this.writeLater();
  }

  countElsewhere(owner: string): Promise<number> {
    return this.deps.directory.countElsewhere(owner);
  }

  private change({ owner, sessionId }: SessionKey, by: 1 | -1): void {
    const name = formatSessionKey({ owner, sessionId });
    const sockets = (this.counts.get(name)?.sockets ?? 0) + by;
    if (sockets > 0) this.counts.set(name, { owner, sessionId, sockets });
    else this.counts.delete(name);
    this.changed.set(name, { owner, sessionId });
  }

  /** Resolves once all changes until now are stored. */
  private write(): Promise<void> {
    const writing = this.lastWrite.then(() => this.writeChanged());
    this.lastWrite = writing.catch(() => {});
    return writing;
  }

  private async writeChanged(): Promise<void> {
    if (this.changed.size === 0) return;
    const changed = [...this.changed];
    const unannounced = [...this.unannounced];
    this.changed.clear();
    this.unannounced.clear();
    try {
      await this.deps.directory.setCounts(
        changed.map(([name, key]) => this.counts.get(name) ?? { ...key, sockets: 0 }),
      );
    } catch (error) {
      for (const [name, key] of changed) this.changed.set(name, key);
      for (const [name, key] of unannounced) this.unannounced.set(name, key);
      throw error;
    }
    for (const [, key] of unannounced) this.deps.bus.send('others', 'sockets-opened', key);
  }

  private writeLater(): void {
    this.write().catch(() => {
      this.retry ??= setTimeout(() => {
        this.retry = undefined;
        this.writeLater();
      }, RETRY_MS).unref();
    });
  }

  private async removeDeadHosts(): Promise<void> {
    const { directory, liveness } = this.deps;
    for (const hostId of await liveness.findDeadHosts(await directory.listHosts()))
      await directory.removeHost(hostId);
  }

  private removeHost(hostId: string): void {
    this.deps.directory
      .removeHost(hostId)
      .catch((err) =>
        this.deps.logger.warn({ err, hostId }, 'cannot remove the sockets of a host'),
      );
  }
}
