/** Which hosts are running, decided by the database. */
export interface HostLiveness {
  readonly hostId: string;
  /**
   * Whether the other hosts see this one as running. While false, others may close its runs or execute its queued turns,
   * so it must not write for them.
   */
  readonly isAlive: boolean;
  /** Those of the given hosts that have ended or are disconnected; none while this host cannot know. */
  findDeadHosts(candidates: readonly string[]): Promise<readonly string[]>;
  /** Calls the listener once for each host that ends or is disconnected; at once if it is killed. */
  onHostLost(listener: (hostId: string) => void): () => void;
  /** Calls the listener when `isAlive` becomes false. */
  onLost(listener: () => void): () => void;
  /** Calls the listener when `isAlive` becomes true again. */
  onRegained(listener: () => void): () => void;
}

/** For a host that has its database for itself: all others have ended. */
export class SoleHost implements HostLiveness {
  readonly hostId: string;
  readonly isAlive = true;

  constructor(hostId: string) {
    this.hostId = hostId;
  }

  async findDeadHosts(candidates: readonly string[]): Promise<readonly string[]> {
    return candidates.filter((id) => id !== this.hostId);
  }

  onHostLost(): () => void {
    return () => {};
  }

  onLost(): () => void {
    return () => {};
  }

  onRegained(): () => void {
    return () => {};
  }
}
