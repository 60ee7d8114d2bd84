import type { Logger } from '@sibyl/plugin-kit';
import type { ClaimsProcessed } from './claim.js';
import type { ClaimNews, ClaimRow, ClaimStore, RunnerLease } from './claim-store.js';
import { type ClaimsService, ServiceError, type Verdict } from './claims-service.js';
import type { Unpaid, UnpaidUsage } from './unpaid-usage.js';

/** How long one call works; whoever called should not wait for longer. */
const WORK_MS = 25_000;

interface ClaimRunnerParts {
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

/** Brings claims forward: submits the open ones and asks what became of the submitted. */
export class ClaimRunner {
  readonly #parts: ClaimRunnerParts;
  readonly #runs = new Set<Promise<ClaimsProcessed>>();
  #isStopping = false;

  constructor(parts: ClaimRunnerParts) {
    this.#parts = parts;
  }

  /** Works on what is due; does nothing while another runner does. */
  async run(): Promise<ClaimsProcessed> {
    const run = this.#run();
    this.#runs.add(run);
    try {
      return await run;
    } finally {
      this.#runs.delete(run);
    }
  }

  /** Begins no further claim, and settles once the one in progress is noted. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.allSettled(this.#runs);
  }

  async #run(): Promise<ClaimsProcessed> {
    const counts: Counts = { settled: 0, submitted: 0, failed: 0, postponed: 0 };
    const lease = this.#parts.newLease();
    if (!(await lease.hold())) return { status: 'busy', ...counts };
    try {
      await this.#adoptAll();
      return { status: await this.#work(lease, counts), ...counts };
    } finally {
      await lease.release();
    }
  }

  async #adoptAll(): Promise<void> {
    const { usage, store } = this.#parts;
    let after = '';
    for (;;) {
      const page = await usage.list({ after });
      await store.adopt(page);
      const last = page.at(-1);
      if (!last) return;
      after = last.id;
    }
  }

  async #work(lease: RunnerLease, counts: Counts): Promise<ClaimsProcessed['status']> {
    const { store, elapsed = () => performance.now() } = this.#parts;
    const end = elapsed() + WORK_MS;
    for (;;) {
      const due = await store.due();
      if (due.length === 0) return 'done';
      for (const claim of due) {
        // Slow services may outlast the lease: without it somebody else is at work by now.
        if (this.#isStopping || elapsed() > end) return 'unfinished';
        if (!(await lease.hold())) return 'unfinished';
        counts[await this.#advance(claim)] += 1;
      }
    }
  }

  async #advance(claim: ClaimRow): Promise<CountName> {
    const { id, owner } = claim;
    const unpaid = await this.#parts.usage.take({ owner, id });
    if (!unpaid) return this.#finish(claim, { status: 'settled' });
    await this.#parts.store.begin(claim, unpaid.amount);
    try {
      return await this.#finish(claim, await this.#ask(claim, unpaid));
    } catch (err) {
      this.#parts.logger.warn({ claimId: id, did: owner, err }, 'claim tried in vain');
      const reason = describeFailure(err);
      await this.#parts.store.record(id, { status: claim.status, reason });
      return 'postponed';
    }
  }

  /** A claim that was sent before may have arrived: it is looked for, and sent again only if it has not. */
  async #ask(claim: ClaimRow, { amount }: Unpaid): Promise<Verdict> {
    const { service } = this.#parts;
    const known = claim.attempts > 0 ? await service.find(claim) : undefined;
    return known ?? service.submit(claim, amount);
  }

  /** The usage comes first: should this stop halfway, the next attempt finds it as it is. */
  async #finish({ id, owner }: ClaimRow, news: ClaimNews & Verdict): Promise<CountName> {
    const { usage, store } = this.#parts;
    if (news.status === 'settled') await usage.settle({ owner, id });
    if (news.status === 'failed') await usage.giveBack({ owner, id });
    await store.record(id, news);
    return news.status;
  }
}

/** The user reads it: what may name addresses inside of the network, or code of ours, is for the log alone. */
function describeFailure(error: unknown): string {
  if (error instanceof ServiceError) return error.message;
  return 'The claims service cannot be reached, or gave an answer that cannot be read';
}
