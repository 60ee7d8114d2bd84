import type { Logger } from 'pino';
import { DirectoryLock } from './directory-lock.js';
import {
  createHostId,
  type HostBus,
  type HostLiveness,
  MemoryHostBus,
  SoleHost,
} from './host-bus.js';

/** The hosts that share a database, as one of them sees them. */
export interface Cluster {
  readonly hostId: string;
  readonly bus: HostBus;
  readonly liveness: HostLiveness;
  /** Other hosts then see this one as ended. */
  close(): Promise<void>;
}

export interface ClusterOptions {
  /** Unset for SQLite, which only one host can use. */
  readonly databaseUrl?: string | undefined;
  /** For connections that keep their session, if `databaseUrl` is that of a pooler. */
  readonly databaseDirectUrl?: string | undefined;
  readonly dataDir: string;
  readonly logger: Pick<Logger, 'error' | 'warn' | 'info'>;
}

/** Throws a ConfigError if another host uses the SQLite file, or if the connection to PostgreSQL is unsuitable. */
export async function joinCluster(options: ClusterOptions): Promise<Cluster> {
  const { databaseUrl, databaseDirectUrl, dataDir, logger } = options;
  const hostId = createHostId();
  if (databaseUrl) {
    // Loaded only here, since most hosts use SQLite.
    const { joinPostgresCluster } = await import('./postgres-cluster.js');
    return joinPostgresCluster({ hostId, databaseUrl, databaseDirectUrl, logger });
  }
  const lock = await DirectoryLock.acquire(dataDir);
  return {
    hostId,
    bus: new MemoryHostBus(hostId, logger),
    liveness: new SoleHost(hostId),
    close: async () => lock.release(),
  };
}
