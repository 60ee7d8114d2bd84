import type { Logger } from 'pino';
import { formatSessionKey, type SessionKey } from './event-bus.js';
import type { HostBus } from './host-bus.js';
import type { HostLiveness } from './host-liveness.js';
import type { SocketCount, SocketDirectory } from './socket-directory.js';

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
  private lastWrite: Promise<void> = Promise.resolve();
  private retry: NodeJS.Timeout | undefined;

  constructor(deps: SharedPresenceDeps) {
    this.deps = deps;
    deps.liveness.onHostLost((hostId) => this.removeHost(hostId));
    // Meanwhile another host, or a crash of the server, may have removed the rows.
    deps.liveness.onRegained(() => {
      for (const [name, key] of this.counts) this.changed.set(name, key);
      this.writeLater();
    });
    this.removeDeadHosts().catch((err) =>
      deps.logger.warn({ err }, 'cannot remove the sockets of hosts that have ended'),
    );
  }

  async open(key: SessionKey): Promise<void> {
    this.change(key, 1);
    await this.write();
    const { owner, sessionId } = key;
    this.deps.bus.send('others', 'sockets-opened', { owner, sessionId });
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
    this.changed.clear();
    try {
      await this.deps.directory.setCounts(
        changed.map(([name, key]) => this.counts.get(name) ?? { ...key, sockets: 0 }),
      );
    } catch (error) {
      for (const [name, key] of changed) this.changed.set(name, key);
      throw error;
    }
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
