import { randomUUID } from 'node:crypto';
import type { HostMessages, Logger, PluginDatabase } from '@sibyl/plugin-kit';
import type { ClaimsProcessed, Unpaid, UnpaidUsage } from './claim.js';
import type { ClaimRow, ClaimStore, ClaimsTables, ClaimUpdate } from './claim-store.js';
import { type ClaimsService, ServiceError, type Verdict } from './claims-service.js';

/** Time limit of one run; its HTTP caller waits for it. */
const WORK_MS = 25_000;

interface ClaimRunnerDeps {
  /** Milliseconds of a clock that never goes back. */
  readonly elapsed?: () => number;
  readonly store: ClaimStore;
  readonly service: ClaimsService;
  readonly usage: UnpaidUsage;
  readonly newLease: () => RunnerLease;
  readonly logger: Logger;
}

type Counts = Omit<ClaimsProcessed, 'status'>;
type CountName = keyof Counts;

/** Processes claims: submits the open ones and checks the submitted ones. */
export class ClaimRunner {
  private readonly deps: ClaimRunnerDeps;
  private readonly runs = new Set<Promise<ClaimsProcessed>>();
  private isStopping = false;

  constructor(deps: ClaimRunnerDeps) {
    this.deps = deps;
  }

  /** Processes what is due, unless another runner does. */
  async run(): Promise<ClaimsProcessed> {
    const run = this.runWithLease();
    this.runs.add(run);
    try {
      return await run;
    } finally {
      this.runs.delete(run);
    }
  }

  /** Starts no further claim; resolves once the current one is recorded. */
  async stop(): Promise<void> {
    this.isStopping = true;
    await Promise.allSettled(this.runs);
  }

  private async runWithLease(): Promise<ClaimsProcessed> {
    const counts: Counts = { settled: 0, submitted: 0, failed: 0, postponed: 0 };
    const lease = this.deps.newLease();
    if (!(await lease.hold())) return { status: 'busy', ...counts };
    try {
      await this.adoptAll();
      return { status: await this.work(lease, counts), ...counts };
    } finally {
      await lease.release();
    }
  }

  private async adoptAll(): Promise<void> {
    const { usage, store } = this.deps;
    let after = '';
    for (;;) {
      const page = await usage.list({ after });
      await store.adopt(page);
      const last = page.at(-1);
      if (!last) return;
      after = last.id;
    }
  }

  private async work(lease: RunnerLease, counts: Counts): Promise<ClaimsProcessed['status']> {
    const { store, elapsed = () => performance.now() } = this.deps;
    const end = elapsed() + WORK_MS;
    for (;;) {
      const due = await store.due();
      if (due.length === 0) return 'done';
      for (const claim of due) {
        // A slow service may outlast the lease: another runner may have it by now.
        if (this.isStopping || elapsed() > end) return 'unfinished';
        if (!(await lease.hold())) return 'unfinished';
        counts[await this.advance(claim)] += 1;
      }
    }
  }

  private async advance(claim: ClaimRow): Promise<CountName> {
    const { id, owner } = claim;
    const unpaid = await this.deps.usage.take({ owner, id });
    if (!unpaid) return this.finish(claim, { status: 'settled' });
    await this.deps.store.begin(claim, unpaid.amount);
    try {
      return await this.finish(claim, await this.submit(claim, unpaid));
    } catch (err) {
      this.deps.logger.warn({ claimId: id, did: owner, err }, 'claim failed');
      const reason = describeFailure(err);
      await this.deps.store.record(claim, { status: claim.status, reason });
      return 'postponed';
    }
  }

  /** An earlier attempt may have arrived, so the service is queried before the claim is sent again. */
  private async submit(claim: ClaimRow, { amount }: Unpaid): Promise<Verdict> {
    const { service } = this.deps;
    const known = claim.attempts > 0 ? await service.find(claim) : undefined;
    return known ?? service.submit(claim, amount);
  }

  /** Changes the usage first: if this stops halfway, the next attempt finds it unchanged. */
  private async finish({ id, owner }: ClaimRow, update: ClaimUpdate & Verdict): Promise<CountName> {
    const { usage, store } = this.deps;
    if (update.status === 'settled') await usage.settle({ owner, id });
    if (update.status === 'failed') await usage.release({ owner, id });
    await store.record({ owner, id }, update);
    return update.status;
  }
}

/** The text for users; internal addresses and code go to the log only. */
function describeFailure(error: unknown): string {
  if (error instanceof ServiceError) return error.message;
  return 'The claims service cannot be reached, or sent an invalid answer';
}

/** Longer than one claim can take. */
const LEASE_MS = 60_000;

const LEASE = { owner: '', name: 'process' };

interface RunnerLeaseDeps {
  readonly database: PluginDatabase<ClaimsTables>;
  readonly clock: () => number;
  readonly hosts: Pick<HostMessages, 'hostId' | 'findDead'>;
}

/** Lets one runner of all processes work at a time; the lease of one that died ends with its host, or after a minute. */
export class RunnerLease {
  private readonly deps: RunnerLeaseDeps;
  /** Its host, and which of the runners there. */
  private readonly holder: string;

  constructor(deps: RunnerLeaseDeps) {
    this.deps = deps;
    this.holder = `${deps.hosts.hostId} ${randomUUID()}`;
  }

  /** Acquires or extends the lease; false while another runner has it. */
  async hold(): Promise<boolean> {
    return (await this.take()) || ((await this.endDead()) && this.take());
  }

  /** Ends the lease of a runner whose host is dead. */
  private async endDead(): Promise<boolean> {
    const { database, hosts } = this.deps;
    const lease = await database.tables
      .selectFrom('claims_leases')
      .select('holder')
      .where((e) => e.and(LEASE))
      .executeTakeFirst();
    const [hostId = ''] = lease?.holder.split(' ') ?? [];
    if (!lease || (await hosts.findDead([hostId])).length === 0) return false;
    await this.end(lease.holder);
    return true;
  }

  private take(): Promise<boolean> {
    const { database, clock } = this.deps;
    const now = clock();
    const values = { holder: this.holder, lease_until: now + LEASE_MS };
    return database.write(async (tables) => {
      const held = await tables
        .insertInto('claims_leases')
        .values({ ...LEASE, ...values })
        .onConflict((c) =>
          c
            .columns(['owner', 'name'])
            .doUpdateSet(values)
            .where((e) =>
              e.or([
                e('claims_leases.lease_until', '<', now),
                e('claims_leases.holder', '=', this.holder),
              ]),
            ),
        )
        .returning('name')
        .executeTakeFirst();
      return held !== undefined;
    });
  }

  release(): Promise<void> {
    return this.end(this.holder);
  }

  private async end(holder: string): Promise<void> {
    await this.deps.database.write(async (tables) => {
      await tables
        .deleteFrom('claims_leases')
        .where((e) => e.and({ ...LEASE, holder }))
        .execute();
    });
  }
}
