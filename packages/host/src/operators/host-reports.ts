import type { HostReport, OperatorHost } from '@sibyl/protocol';
import { textBytes, withTimeout } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { Cluster } from '../bus/cluster.js';
import { toModelCause } from '../models/failure-cause.js';
import type { ModelError } from '../models/model.js';
import type { HostStore, StoredHost } from '../store/operators/operator-store.js';

const SAVE_MS = 5_000;
/** A host that has not reported itself for this long is shown as lost. */
const SILENT_MS = 30_000;
const LISTED = 20;
const MAX_BYTES = 512 * 1024;
const READ_LIMIT = { ms: 2_000, message: 'the store does not answer' };
const [RUNNING, LOST, UNKNOWN] = ['running', 'lost', 'unknown'] as const;

/** What happens on this host, for its report. */
export class HostEvents {
  private readonly errors = new RecentCounts(MAX_BYTES);
  private readonly limited = new RecentCounts(MAX_BYTES);
  private readonly failures = new RecentCounts<{ model: string; cause: string; detail: string }>(
    MAX_BYTES,
  );

  /** A request was answered with this error; the limits are those of its caller. */
  recordError(code: string, status: number, did: string | undefined): void {
    this.errors.add(code, undefined);
    if (status === 429 && did !== undefined) this.recordLimited(did);
  }

  /** A caller has reached a limit. */
  recordLimited(did: string): void {
    this.limited.add(did, undefined);
  }

  recordModelFailure(model: string, error: ModelError): void {
    const cause = toModelCause(error);
    const { host, status, code, text } = error.failure;
    const detail = [host, status, code, text].filter(Boolean).join(' ');
    this.failures.add(`${model} ${cause}`, { model, cause, detail });
  }

  describe(): Pick<HostReport, 'errors' | 'limited' | 'modelFailures'> {
    const toDate = (time: number) => new Date(time).toISOString();
    return {
      errors: this.errors
        .list(LISTED)
        .map(({ key: code, count, lastAt }) => ({ code, count, lastAt: toDate(lastAt) })),
      limited: this.limited
        .list(LISTED)
        .map(({ key: did, count, lastAt }) => ({ did, count, lastAt: toDate(lastAt) })),
      modelFailures: this.failures
        .list(LISTED)
        .map(({ count, lastAt, detail }) => ({ ...detail, count, lastAt: toDate(lastAt) })),
    };
  }
}

interface HostReportsDeps {
  readonly cluster: Pick<Cluster, 'hostId' | 'liveness'>;
  /** Undefined if no other host can use the database. */
  readonly hosts: HostStore | undefined;
  /** By the clock of the database. */
  readonly now: () => number;
  readonly describe: () => Promise<HostReport>;
  readonly logger: Pick<Logger, 'debug'>;
}

/** Stores what this host reports about itself, and reads what the others do. */
export class HostReports {
  private timer: NodeJS.Timeout | undefined;
  private saving: Promise<void> = Promise.resolve();
  /** As last read; few, since hosts that ended are not kept long. */
  private others: readonly (StoredHost & { readonly isDead: boolean })[] = [];

  constructor(private readonly deps: HostReportsDeps) {}

  start(): void {
    if (!this.deps.hosts) return;
    const save = () => {
      this.saving = this.save();
    };
    save();
    this.timer = setInterval(save, SAVE_MS).unref();
  }

  /** This host is not listed any more. */
  async close(): Promise<void> {
    clearInterval(this.timer);
    if (this.timer === undefined) return;
    await this.saving;
    const { hosts, cluster } = this.deps;
    // If the store is away, the host is shown as lost, which it is.
    await hosts?.remove(cluster.hostId).catch(() => undefined);
  }

  /** This host first, then the others; as they were last known while the store does not answer. */
  async list(): Promise<readonly OperatorHost[]> {
    const { cluster, describe } = this.deps;
    const [own, isCurrent] = await Promise.all([
      describe(),
      withTimeout(READ_LIMIT, () => this.readOthers()).then(
        () => true,
        () => false,
      ),
    ]);
    const now = this.deps.now();
    return [
      {
        ...own,
        hostId: cluster.hostId,
        state: 'running',
        updatedAt: new Date(now).toISOString(),
      },
      ...this.others.map(({ id, report, updatedAt, isDead }) => ({
        ...report,
        hostId: id,
        state: !isCurrent ? UNKNOWN : isDead || now - updatedAt > SILENT_MS ? LOST : RUNNING,
        updatedAt: new Date(updatedAt).toISOString(),
      })),
    ];
  }

  private async readOthers(): Promise<void> {
    const { hostId, liveness } = this.deps.cluster;
    const stored = (await this.deps.hosts?.list()) ?? [];
    const others = stored.filter(({ id }) => id !== hostId);
    const dead = new Set(await liveness.findDeadHosts(others.map(({ id }) => id)));
    this.others = others.map((each) => ({ ...each, isDead: dead.has(each.id) }));
  }

  private async save(): Promise<void> {
    const { hosts, cluster, describe, logger } = this.deps;
    try {
      await hosts?.save(cluster.hostId, await describe());
      await this.readOthers();
    } catch (error) {
      // The store reports its outages itself.
      logger.debug({ reason: String(error) }, 'the report of this host was not stored');
    }
  }
}

const HOUR_MS = 60 * 60 * 1000;

interface Count<Detail> {
  count: number;
  lastAt: number;
  detail: Detail;
}

/** What happened in about the last hour, by key. Keys that were not seen for longest make room for new ones. */
class RecentCounts<Detail = undefined> {
  private readonly counts = new Map<string, Count<Detail>>();
  private bytes = 0;

  constructor(
    private readonly maxBytes: number,
    private readonly clock: () => number = Date.now,
  ) {}

  add(key: string, detail: Detail): void {
    const now = this.clock();
    const known = this.counts.get(key);
    const isRecent = known !== undefined && now - known.lastAt < HOUR_MS;
    // Deleted and added again, so that the oldest is first.
    if (this.counts.delete(key)) this.bytes -= measure(key);
    this.counts.set(key, { count: (isRecent ? known.count : 0) + 1, lastAt: now, detail });
    this.bytes += measure(key);
    for (const oldest of this.counts.keys()) {
      if (this.bytes <= this.maxBytes) break;
      this.counts.delete(oldest);
      this.bytes -= measure(oldest);
    }
  }

  /** Most frequent first. */
  list(limit: number): readonly (Readonly<Count<Detail>> & { readonly key: string })[] {
    const since = this.clock() - HOUR_MS;
    return [...this.counts]
      .filter(([, { lastAt }]) => lastAt >= since)
      .map(([key, count]) => ({ key, ...count }))
      .sort((a, b) => b.count - a.count)
      .slice(0, limit);
  }
}

/** With a detail of at most a few hundred characters. */
const measure = (key: string): number => textBytes(key) + 1_000;
