import { EventEmitter } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { LruMap, textBytes } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { HostBus, HostLiveness } from './host-bus.js';
import type { PostgresSession } from './postgres-session.js';

/** The first 16 bits of the lock of a host; the others are its id. */
const HOST_LOCK_CLASS = 0x51b1;

/**
 * How long a wait for the lock of another host takes at most. Below PostgreSQL's default `deadlock_timeout`, after which it
 * logs waits; and a longer wait would keep vacuum from removing rows.
 */
const WAIT_MS = 900;
const RETRY_MS = 100;
const REPORTED_MAX_BYTES = 64 * 1024;

/** How long a host may take to connect again before it is considered dead: a lost connection alone ends no turn. */
const RECONNECT_MS = 300;

/** How long after a restart of PostgreSQL, or after its own reconnection, a host considers no other host dead. */
const SETTLE_MS = 10_000;

/** The shared locks of running hosts, as their ids. An exclusive lock is a host that waits for another one. */
const RUNNING_HOSTS = `
  select
    clock_timestamp() - pg_postmaster_start_time() > interval '${SETTLE_MS} milliseconds' as "isSettled",
    array(
      select distinct lpad(to_hex(((classid::int8 & 65535) << 32) | objid::int8), 12, '0')
      from pg_locks
      where locktype = 'advisory' and objsubid = 1 and granted and mode = 'ShareLock'
        and classid::int8 >> 16 = ${HOST_LOCK_CLASS}
        and database = (select oid from pg_database where datname = current_database())
    ) as "hostIds"
`;

interface RunningHosts {
  readonly isSettled: boolean;
  readonly hostIds: readonly string[];
}

/** Takes the lock of a host for as long as the session lasts. */
export const lockHost = (hostId: string): string =>
  `select pg_advisory_lock_shared(${toLockKey(hostId)})`;

/** Returns once the host has ended, or in a second. The lock is released at once. */
const waitForEnd = (hostId: string): string => `
  do $$ begin
    set local lock_timeout = ${WAIT_MS};
    perform pg_advisory_xact_lock(${toLockKey(hostId)});
  exception when lock_not_available then null;
  end $$
`;

const toLockKey = (hostId: string): bigint =>
  (BigInt(HOST_LOCK_CLASS) << 48n) | BigInt(`0x${hostId}`);

interface LivenessEvents {
  hostLost: [hostId: string];
  lost: [];
  regained: [];
}

interface PostgresLivenessDeps {
  readonly bus: HostBus;
  /** The sessions that hold the lock of this host: it is only lost with the last of them. */
  readonly holders: readonly PostgresSession[];
  /** Waits for the locks of other hosts. */
  readonly watcher: PostgresSession;
  readonly logger: Pick<Logger, 'warn' | 'info'>;
}

/**
 * Each host holds a lock that PostgreSQL releases when its sessions end, and waits for the lock of the next host in the
 * order of ids, in a ring: so one of them notices at once when a host is killed, and informs the others.
 */
export class PostgresLiveness implements HostLiveness {
  readonly hostId: string;
  private readonly deps: PostgresLivenessDeps;
  private readonly events = new EventEmitter<LivenessEvents>().setMaxListeners(0);
  /** Hosts that were running when last seen, and have not been reported as lost since. */
  private readonly known = new Set<string>();
  /** Hosts that were running when last seen; a host leaves it even while no host is considered dead. */
  private running = new Set<string>();
  /** Hosts that have been reported as lost, so that each is reported once. */
  private readonly reported = new LruMap<string, true>({
    maxBytes: REPORTED_MAX_BYTES,
    measure: (_, id) => textBytes(id),
  });
  private wasAlive = true;
  private regainedAt = Number.NEGATIVE_INFINITY;
  private readonly closing = new AbortController();
  private readonly watching: Promise<void>;

  constructor(deps: PostgresLivenessDeps) {
    this.deps = deps;
    this.hostId = deps.bus.hostId;
    for (const holder of deps.holders) {
      holder.on('lost', (error) => this.check(error));
      holder.on('connected', () => this.check());
    }
    deps.bus.on('host-joined', ({ hostId }) => {
      this.known.add(hostId);
      this.running.add(hostId);
    });
    deps.bus.on('host-lost', ({ hostId }) => {
      if (!this.reported.get(hostId)) this.known.add(hostId);
      // Not on the watcher, which is waiting.
      this.readFromHolder().then(
        (running) => running && this.reportLost(running),
        () => {},
      );
    });
    deps.bus.send('others', 'host-joined', { hostId: this.hostId });
    this.watching = this.watch();
  }

  get isAlive(): boolean {
    return this.deps.holders.some(({ isConnected }) => isConnected);
  }

  get lastSeen(): number {
    return Math.max(...this.deps.holders.map(({ lastAnswerAt }) => lastAnswerAt));
  }

  get hostCount(): number {
    return this.known.size;
  }

  isRunning(hostId: string): boolean {
    return this.running.has(hostId);
  }

  async findDeadHosts(candidates: readonly string[]): Promise<readonly string[]> {
    const missing = await this.findMissing(candidates);
    if (missing.length === 0) return [];
    await sleep(RECONNECT_MS);
    return this.findMissing(missing);
  }

  private async findMissing(candidates: readonly string[]): Promise<readonly string[]> {
    if (candidates.length === 0) return [];
    const running = await this.readFromHolder().catch(() => undefined);
    if (!running || !this.isSettled(running)) return [];
    const alive = new Set(running.hostIds);
    return candidates.filter((id) => !alive.has(id));
  }

  onHostLost(listener: (hostId: string) => void): () => void {
    return this.listen('hostLost', listener);
  }

  onLost(listener: () => void): () => void {
    return this.listen('lost', listener);
  }

  onRegained(listener: () => void): () => void {
    return this.listen('regained', listener);
  }

  /** The sessions must be closed after this. */
  async close(): Promise<void> {
    this.closing.abort();
    this.events.removeAllListeners();
    await this.watching;
  }

  private listen(event: keyof LivenessEvents, listener: (hostId: string) => void): () => void {
    const member = (hostId = '') => listener(hostId);
    this.events.on(event, member);
    return () => this.events.off(event, member);
  }

  /** Reports changes of `isAlive`. */
  private check(error?: Error): void {
    const { isAlive, wasAlive } = this;
    if (isAlive === wasAlive) return;
    this.wasAlive = isAlive;
    if (isAlive) {
      this.regainedAt = performance.now();
      this.deps.logger.info('reconnected to PostgreSQL');
      this.events.emit('regained');
    } else {
      this.deps.logger.warn(
        { reason: error?.message },
        'disconnected from PostgreSQL: other hosts may take over the turns of this host',
      );
      this.events.emit('lost');
    }
  }

  private async readFromHolder(): Promise<RunningHosts | undefined> {
    const holder = this.deps.holders.find(({ isConnected }) => isConnected);
    const [running] = (await holder?.query<RunningHosts>(RUNNING_HOSTS)) ?? [];
    return running;
  }

  private isSettled({ isSettled }: RunningHosts): boolean {
    return isSettled && this.isAlive && performance.now() - this.regainedAt >= SETTLE_MS;
  }

  private async watch(): Promise<void> {
    const { watcher } = this.deps;
    const { signal } = this.closing;
    while (!signal.aborted) {
      try {
        const [running] = await watcher.query<RunningHosts>(RUNNING_HOSTS);
        const lost = running ? this.reportLost(running) : [];
        for (const hostId of lost) this.deps.bus.send('others', 'host-lost', { hostId });
        const next = running && findNext(running.hostIds, this.hostId);
        if (next) await watcher.query(waitForEnd(next));
        else await sleep(WAIT_MS, undefined, { signal });
      } catch {
        // The session is reconnecting, or this host is closing.
        await sleep(RETRY_MS, undefined, { signal }).catch(() => {});
      }
    }
  }

  /** Calls the listeners for hosts that are no longer running; returns these hosts. */
  private reportLost(running: RunningHosts): string[] {
    const alive = new Set(running.hostIds);
    this.running = alive;
    for (const id of alive) {
      this.known.add(id);
      this.reported.delete(id);
    }
    // Its own lock may be free for a moment.
    const isLost = (id: string) => !alive.has(id) && id !== this.hostId;
    const lost = this.isSettled(running) ? [...this.known].filter(isLost) : [];
    for (const id of lost) {
      this.known.delete(id);
      this.reported.set(id, true);
      this.events.emit('hostLost', id);
    }
    return lost;
  }
}

/** The next host in the order of ids, after the last one the first; undefined if there is no other. */
function findNext(hostIds: readonly string[], own: string): string | undefined {
  const others = hostIds.filter((id) => id !== own).sort();
  return others.find((id) => id > own) ?? others[0];
}
