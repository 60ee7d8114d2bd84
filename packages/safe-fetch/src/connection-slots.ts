import { SafeFetchError } from './safe-fetch-error.js';

export interface ConnectionLimits {
  /** Requests in progress to all hosts together, from the look-up of the name to the last byte. */
  readonly maxConnections: number;
  /** The same for one host, so that one that hangs leaves room for the others. */
  readonly maxConnectionsPerHost: number;
}

/** A request's place among those in progress. */
export interface ConnectionSlot {
  /** Moves to the host that a redirect names; throws as `take` does. */
  move(host: string): void;
  release(): void;
}

/** Counts requests in progress and refuses those beyond the limits; none waits. */
export class ConnectionSlots {
  private readonly hosts = new Map<string, number>();
  private total = 0;

  constructor(private readonly limits: ConnectionLimits) {}

  /** Throws a `busy` SafeFetchError where a limit is reached. */
  take(host: string): ConnectionSlot {
    let current: string | undefined;
    const release = () => {
      if (current !== undefined) this.leave(current);
      current = undefined;
    };
    const move = (next: string) => {
      if (next === current) return;
      release();
      this.enter(next);
      current = next;
    };
    move(host);
    return { move, release };
  }

  private enter(host: string): void {
    const { maxConnections, maxConnectionsPerHost } = this.limits;
    const open = this.hosts.get(host) ?? 0;
    if (open >= maxConnectionsPerHost)
      throw new SafeFetchError('busy', `${open} requests to ${host} are in progress; ${RETRY}.`);
    if (this.total >= maxConnections)
      throw new SafeFetchError('busy', `${this.total} requests are in progress; ${RETRY}.`);
    this.hosts.set(host, open + 1);
    this.total += 1;
  }

  private leave(host: string): void {
    const open = (this.hosts.get(host) ?? 1) - 1;
    if (open > 0) this.hosts.set(host, open);
    else this.hosts.delete(host);
    this.total -= 1;
  }
}

const RETRY = 'try again later';
